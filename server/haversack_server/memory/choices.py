"""Which option each block of a chain runs: from the recompute setting, or from explicit actions.

Knows the names of options ("save", "recompute", "selective"), not what they cost.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.run import BlockAction, Recompute, RecomputeMethod, Training
from haversack_server.memory.chain import Chain, ChainBlock
from haversack_server.memory.options import Made

SAVE, RECOMPUTE, SELECTIVE = "save", "recompute", "selective"


def choose(chain: Chain, training: Training, known: Collection[str] = ()) -> tuple[int, ...]:
    """Give one option index per block. ``known``: the blocks of all stages, which actions name."""
    if training.actions:
        return _of_actions(chain, training.actions, known)
    if training.recompute is Recompute.SELECTIVE:
        return _everywhere(chain.blocks, SELECTIVE)
    if training.recompute is not Recompute.FULL:
        return _everywhere(chain.blocks, SAVE)
    if training.recompute_method is RecomputeMethod.BLOCK:
        return _first_layers(chain, training.recompute_layers or 1)
    return _everywhere(chain.blocks, RECOMPUTE)


def options_chosen(training: Training) -> Made:
    """Tell up to which option a table is read for a run."""
    if training.actions or training.recompute is Recompute.SELECTIVE:
        return Made.ALL
    return Made.RECOMPUTE if training.recompute is Recompute.FULL else Made.SAVE


def whole_layers(chain: Chain) -> Chain:
    """Leave only what treats a block as a whole: save, or recompute."""
    made = {id(block.options): block.options for block in chain.blocks}
    kept = {
        key: tuple(option for option in options if option.name in (SAVE, RECOMPUTE))
        for key, options in made.items()
    }
    blocks = tuple(replace(block, options=kept[id(block.options)]) for block in chain.blocks)
    return replace(chain, blocks=blocks)


def _everywhere(blocks: Sequence[ChainBlock], name: str) -> tuple[int, ...]:
    """Run the option wherever there is one of the name; other blocks save."""
    return tuple(block.option_index(name) or 0 for block in blocks)


def _first_layers(chain: Chain, count: int) -> tuple[int, ...]:
    """Recompute the first ``count`` layers of every chunk."""
    choice: list[int] = []
    for chunk in chain.pipeline.chunks_of(len(chain.blocks)):
        left = count
        for block in chain.blocks[chunk.start : chunk.stop]:
            # Layers beside the head, which predict further tokens, are not counted.
            index = None if block.is_head else block.option_index(RECOMPUTE)
            choice.append(index if index is not None and left > 0 else 0)
            left -= index is not None
    return tuple(choice)


def _of_actions(
    chain: Chain, actions: Sequence[BlockAction], known: Collection[str]
) -> tuple[int, ...]:
    """Find the option that each action names; blocks without one save."""
    places = {block.name: place for place, block in enumerate(chain.blocks)}
    choice = [block.option_index(SAVE) or 0 for block in chain.blocks]
    named: set[str] = set()
    for index, action in enumerate(actions):
        path = f"training.actions[{index}]"
        _check_block(action.block, path, known or places, named)
        if action.segment:
            raise NotSupportedError(
                f"{path}.segment: segments of several blocks are planned for profiles, and not "
                "estimated; leave it out"
            )
        named.add(action.block)
        if action.block in places:
            place = places[action.block]
            choice[place] = _option_of(chain.blocks[place], action.option, path)
    return tuple(choice)


def _check_block(
    name: str, path: str, known: Collection[str] | Mapping[str, int], named: Collection[str]
) -> None:
    if name in named:
        raise InvalidRequestError(f"{name[:60]!r} stands twice; keep one", field=f"{path}.block")
    if name not in known:
        first, second, *_, last = known
        raise InvalidRequestError(
            f"{name!r} is no block; blocks are {first}, {second} ... {last}",
            field=f"{path}.block",
        )


def _option_of(block: ChainBlock, name: str, path: str) -> int:
    option = block.option_index(name)
    if option is None:
        known = ", ".join(each.name for each in block.options)
        raise InvalidRequestError(
            f"{block.name} has no option {name!r}; it has {known}", field=f"{path}.option"
        )
    return option
