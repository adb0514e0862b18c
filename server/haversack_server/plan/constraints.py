"""What a plan must and must not do: options that a block may not take are left out of its table."""

from dataclasses import replace

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import PlanConstraints
from haversack_server.memory.chain import Chain, ChainBlock


def constrained(chain: Chain, constraints: PlanConstraints | None) -> Chain:
    """Keep the options that the constraints allow; gives the chain itself where there are none."""
    if constraints is None:
        return chain
    if constraints.equal_treatment:
        raise NotSupportedError(
            "constraints.equal_treatment: this version chooses for each block by itself; "
            "leave it out"
        )
    blocks = {block.name: block for block in chain.blocks}
    for name in ("must_save", "must_recompute"):
        saves = name == "must_save"
        for place, block in enumerate(getattr(constraints, name)):
            path = f"constraints.{name}[{place}]"
            blocks[block] = _only(_known(block, blocks, path), saves, path)
    return replace(chain, blocks=tuple(blocks.values()))


def _known(name: str, blocks: dict[str, ChainBlock], path: str) -> ChainBlock:
    if name not in blocks:
        first, *_, last = blocks
        raise InvalidRequestError(
            f"{name[:60]!r} is no block; blocks are {first} to {last}", field=path
        )
    return blocks[name]


def _only(block: ChainBlock, saves: bool, path: str) -> ChainBlock:
    options = tuple(option for option in block.options if (option.name == "save") is saves)
    if not options:
        raise InvalidRequestError(
            f"{block.name} can only be {'recomputed' if saves else 'saved'}; leave it out",
            field=path,
        )
    return replace(block, options=options)
