"""Pieces of a profiled chain, written as the actions of a plan."""

from collections.abc import Iterator, Sequence

from haversack.profile import Profile
from haversack.run import BlockAction
from haversack_server.plan.nested import Nest
from haversack_server.plan.pieces import Piece
from haversack_server.plan.profiled_chain import ProfiledChain


def actions_of(
    profile: Profile, chain: ProfiledChain, pieces: Sequence[Piece]
) -> tuple[BlockAction, ...]:
    """Give an action for each block; those of a segment bear its number."""
    return tuple(
        BlockAction(
            block=block.name,
            option=option,
            fingerprint=block.fingerprint,
            segment=segment,
            inner_segments=inner,
        )
        for block, (option, segment, inner) in zip(
            profile.blocks, _options(chain, pieces), strict=True
        )
    )


def saved_count(chain: ProfiledChain, pieces: Sequence[Piece]) -> int:
    """Count the blocks that are simply saved."""
    return sum(option == "save" for option, *_ in _options(chain, pieces))


def _options(
    chain: ProfiledChain, pieces: Sequence[Piece]
) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    segment = 0
    for piece in pieces:
        if piece.option is not None:
            yield chain.options[piece.first][piece.option].name, 0, ()
            continue
        segment += 1
        for inner in _paths(piece.nest):
            yield "recompute", segment, inner


def _paths(nest: Nest, around: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Say for each block of a nest which nests within it it is in, from 1."""
    number = 0
    for each in nest:
        if isinstance(each, int):
            yield around
        else:
            number += 1
            yield from _paths(each, (*around, number))
