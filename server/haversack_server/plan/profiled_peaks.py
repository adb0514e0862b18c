"""The moments of a profiled step: how high each is, where, and what it is made of."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from haversack.plan import MomentPeak, PeakAt
from haversack.units import format_bytes
from haversack_server.plan.pieces import FORWARD, Moment, Piece, backward_of, forward_of
from haversack_server.plan.profiled_chain import ProfiledChain
from haversack_server.plan.skips import Spared, spared

Height = tuple[int, PeakAt]


def peak_of(chain: ProfiledChain, pieces: Sequence[Piece]) -> Height:
    """Give the highest live bytes of a step, and where they are; of equal ones the first."""
    return max(heights(chain, pieces), key=lambda height: height[0])


def moments_of(chain: ProfiledChain, pieces: Sequence[Piece]) -> tuple[MomentPeak, ...]:
    """Give the highest live bytes of each block in each phase, in their order."""
    peaks: dict[tuple[str, str], int] = {}
    for size, at in heights(chain, pieces):
        key = at.phase, at.block
        peaks[key] = max(size, peaks.get(key, 0))
    return tuple(
        MomentPeak(phase=phase, block=block, peak_bytes=size)
        for (phase, block), size in peaks.items()
    )


def heights(chain: ProfiledChain, pieces: Sequence[Piece]) -> Iterator[Height]:
    """Give every moment of a step, in order: forward, backward, the optimizer's step."""
    kept = [0, *accumulate(piece.retained_bytes for piece in pieces)]
    placed, freed = list(zip(pieces, kept, strict=False)), spared_by(chain, pieces)
    for piece, before in placed:
        for moment in forward_of(chain, piece):
            yield _height(chain, moment, before - freed.forward[moment.place])
    for piece, before in reversed(placed):
        for moment in backward_of(chain, piece):
            yield _height(chain, moment, before - freed.backward[moment.place])
    yield _optimizer_step(chain)


def spared_by(chain: ProfiledChain, pieces: Sequence[Piece]) -> Spared:
    """Say what a plan frees early; with segments nothing, whose blocks hand on by other ways."""
    options = [piece.option for piece in pieces if piece.option is not None]
    if len(options) < len(pieces):
        nothing = (0,) * len(chain.names)
        return Spared(nothing, nothing)
    return spared(chain.skips, options)


def _height(chain: ProfiledChain, moment: Moment, kept: int) -> Height:
    forward, name = moment.phase == FORWARD, chain.names[moment.place]
    terms = {
        "states and what the caller holds": chain.standing_bytes - chain.reserve_bytes,
        "kept free beyond the prediction": chain.reserve_bytes,
        chain.beside: chain.base(forward, moment.at) - chain.standing_bytes,
        "retained by the blocks before": kept,
        f"{moment.phase} of {name}": moment.own_bytes,
    }
    at = PeakAt(
        block=name,
        phase="forward" if forward else "backward",
        moment=f"{moment.phase} {name}",
        largest_terms=_largest(terms),
    )
    return sum(terms.values()), at


def _optimizer_step(chain: ProfiledChain) -> Height:
    terms = {
        "states and what the caller holds": chain.standing_bytes - chain.reserve_bytes,
        "kept free beyond the prediction": chain.reserve_bytes,
        "gradients": chain.all_gradients,
        "the optimizer's step": chain.step_bytes,
    }
    at = PeakAt(phase="optimizer", moment="optimizer step", largest_terms=_largest(terms))
    return chain.fixed_bytes, at


def _largest(terms: Mapping[str, int]) -> tuple[str, ...]:
    largest = sorted(terms.items(), key=lambda term: -term[1])
    return tuple(f"{term}: {format_bytes(size)}" for term, size in largest if size)
