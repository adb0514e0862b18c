"""What a plan must and must not do: options that a block may not take are left out of its table."""

from collections.abc import Mapping
from dataclasses import replace

from haversack.errors import InvalidRequestError
from haversack.plan import PlanConstraints
from haversack_server.memory.chain import Chain, Option

Options = tuple[Option, ...]


def constrained(chain: Chain, constraints: PlanConstraints | None) -> Chain:
    """Keep the options that the constraints allow; gives the chain itself where there are none."""
    if constraints is None:
        return chain
    left = allowed({block.name: block.options for block in chain.blocks}, constraints)
    blocks = tuple(replace(block, options=left[block.name]) for block in chain.blocks)
    return replace(chain, blocks=blocks)


def allowed(
    options: Mapping[str, Options], constraints: PlanConstraints | None
) -> dict[str, Options]:
    """Keep the options that the constraints allow, by the name of the block."""
    left = dict(options)
    if constraints is None:
        return left
    for name in ("must_save", "must_recompute"):
        saves = name == "must_save"
        for place, block in enumerate(getattr(constraints, name)):
            path = f"constraints.{name}[{place}]"
            if block in constraints.must_save and not saves:
                raise InvalidRequestError(
                    f"{block[:60]!r} is to be saved and recomputed; leave it out of one of both",
                    field=path,
                )
            left[block] = _only(block, _known(block, left, path), saves, path)
    return left


def _known(name: str, options: Mapping[str, Options], path: str) -> Options:
    if name not in options:
        first, *_, last = options
        raise InvalidRequestError(
            f"{name[:60]!r} is no block; blocks are {first} to {last}", field=path
        )
    return options[name]


def _only(name: str, options: Options, saves: bool, path: str) -> Options:
    left = tuple(option for option in options if (option.name == "save") is saves)
    if not left:
        raise InvalidRequestError(
            f"{name} can only be {'recomputed' if saves else 'saved'}; leave it out",
            field=path,
        )
    return left
