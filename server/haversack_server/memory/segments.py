"""Full recomputation in segments of several layers, each of which keeps its input only.

Megatron-LM's --recompute-method uniform with --recompute-num-layers N: one checkpoint around N
layers (megatron/core/transformer/transformer_block.py, _checkpointed_forward). Backward first runs
the segment forward again with everything saved, then goes back through it, so the last layer's
backward finds what the others have saved. Written as one option for each layer of a segment: what
a layer needs there depends on its place.
"""

from collections.abc import Sequence
from dataclasses import replace

from haversack.run import Recompute, RecomputeMethod, Training
from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.choices import RECOMPUTE, SAVE


def segmented(chains: Sequence[Chain], training: Training) -> tuple[Chain, ...]:
    """Let ``recompute`` mean the run's segments; they do not go beyond a chunk of a stage."""
    uniform = training.recompute_method is not RecomputeMethod.BLOCK
    layers = training.recompute_layers or 1
    if training.recompute is not Recompute.FULL or layers == 1 or not uniform:
        return tuple(chains)
    maker = _Maker()
    return tuple(maker.segmented(chain, layers) for chain in chains)


class _Maker:
    """Makes the options of segments; equal segments share theirs, so that equal stages stay so."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], list[tuple[Option, ...]]] = {}

    def segmented(self, chain: Chain, layers: int) -> Chain:
        """Cut the layers of every chunk into segments."""
        blocks = list(chain.blocks)
        for chunk in chain.pipeline.chunks_of(len(blocks)):
            places = [
                place
                for place in range(chunk.start, chunk.stop)
                if blocks[place].option_index(RECOMPUTE) is not None and not blocks[place].is_head
            ]
            for first in range(0, len(places), layers):
                segment = places[first : first + layers]
                made = self._options([blocks[place] for place in segment])
                for place, options in zip(segment, made, strict=True):
                    blocks[place] = replace(blocks[place], options=options)
        return replace(chain, blocks=tuple(blocks))

    def _options(self, blocks: Sequence[ChainBlock]) -> list[tuple[Option, ...]]:
        if len(blocks) == 1:
            return [blocks[0].options]
        key = tuple(id(block.options) for block in blocks)
        if key not in self._known:
            self._known[key] = _segment(blocks)
        return self._known[key]


def _segment(blocks: Sequence[ChainBlock]) -> list[tuple[Option, ...]]:
    """Give each layer its share of the segment; one of them has the input that it keeps.

    That is the first where blocks count the input they keep, and the last where they count their
    output, which is the next segment's input.
    """
    saved = [_option(block, SAVE) for block in blocks]
    keeps_input = blocks[0].passing_input_bytes > 0
    keeper = 0 if keeps_input else len(blocks) - 1
    rebuilt = _rebuilt(saved) + blocks[-1].output_gradient_bytes
    again, made = 0, []
    for place, (block, save) in enumerate(zip(blocks, saved, strict=True)):
        last, recompute = place == len(blocks) - 1, _option(block, RECOMPUTE)
        # What the first layer keeps stands before the others, so it is not theirs again.
        before = _option(blocks[0], RECOMPUTE).retained_bytes if keeps_input and place else 0
        # The input of an inner layer is kept by no one, and alive while the layer runs.
        entering = block.input_gradient_bytes - block.passing_input_bytes if place else 0
        highest = rebuilt - before if last else 0
        option = replace(
            recompute,
            retained_bytes=recompute.retained_bytes if place == keeper else 0,
            forward_peak_bytes=recompute.forward_peak_bytes + entering,
            backward_peak_bytes=max(save.backward_peak_bytes + again - before, highest),
            backward_points=_points(save, again - before, highest),
        )
        made.append(tuple(option if each.name == RECOMPUTE else each for each in block.options))
        again += save.retained_bytes
    return made


def _rebuilt(saved: Sequence[Option]) -> int:
    """The highest bytes while the segment runs forward again."""
    before, highest = 0, 0
    for option in saved:
        highest = max(highest, before + option.forward_peak_bytes)
        before += option.retained_bytes
    return highest


def _points(save: Option, again: int, rebuilt: int) -> tuple[tuple[int, int], ...]:
    """Moments of a layer's backward beside what the layers before it have saved again."""
    points = tuple((live + again, elements) for live, elements in save.backward_points)
    return ((rebuilt, 0), *points) if rebuilt else points


def _option(block: ChainBlock, name: str) -> Option:
    return next(option for option in block.options if option.name == name)
