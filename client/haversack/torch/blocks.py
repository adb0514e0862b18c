"""The blocks of a model: the modules that decisions are taken for, and how one knows them again.

Reads names, shapes and types of parameters and buffers, never their values.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from haversack.errors import InvalidRequestError, Violation, check


def inner_module(model: object) -> nn.Module:
    """Give the module whose names a plan spells: what ``DistributedDataParallel`` wraps."""
    if not isinstance(model, nn.Module):
        raise InvalidRequestError(
            f"a {type(model).__name__} has no blocks; give a torch.nn.Module", field="model"
        )
    if isinstance(model, DistributedDataParallel):
        return inner_module(model.module)
    return model


def detected_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Find the children of the outermost ``ModuleList``s."""
    return _children_of_outermost(model, nn.ModuleList)


def chained_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Find blocks in a model that has no ``ModuleList``; empty if there are not two of them.

    They are the children of the outermost ``Sequential``s and ``ModuleDict``s, else the children
    with parameters of the first module that has several.
    """
    found = _children_of_outermost(model, nn.Sequential, nn.ModuleDict)
    path, module = "", model
    while len(found) < 2:
        children = dict(module.named_children())
        if not children:
            return {}
        found = {
            f"{path}{name}": child
            for name, child in children.items()
            if next(child.parameters(), None) is not None
        }
        name, module = next(iter(children.items()))
        path = f"{path}{name}."
    return found


def _children_of_outermost(model: nn.Module, *kinds: type[nn.Module]) -> dict[str, nn.Module]:
    of_kind = [path for path, module in model.named_modules() if isinstance(module, kinds)]
    outer = [path for path in of_kind if not any(_is_within(path, other) for other in of_kind)]
    return {
        name: block for path in outer for name, block in _called(path, model.get_submodule(path))
    }


def _called(path: str, container: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Name the children of a container; of one that is a container in turn, which none calls, its.

    A container with a forward of its own is a block.
    """
    for child, block in container.named_children():
        name = f"{path}.{child}" if path else child
        is_container = isinstance(block, nn.ModuleList | nn.ModuleDict)
        if is_container and type(block).forward is nn.Module.forward:
            yield from _called(name, block)
        else:
            yield name, block


def _is_within(path: str, other: str) -> bool:
    return path.startswith(f"{other}.") if other else bool(path)


def named_blocks(model: nn.Module, names: Sequence[str], field: str) -> dict[str, nn.Module]:
    """Find modules by their names; none may be within another."""
    modules = dict(model.named_modules())
    known = ", ".join(name for name in list(modules)[:8] if name)
    check(
        [
            Violation(
                f"{field}[{place}]",
                f"the model has no module {name[:200]!r}; its first modules are {known}",
            )
            for place, name in enumerate(names)
            if not name or name not in modules
        ]
    )
    for place, name in enumerate(names):
        outer = next((each for each in names if name.startswith(f"{each}.")), None)
        if outer is not None or name in names[:place]:
            raise InvalidRequestError(
                f"{name!r} is named with {outer or name!r}, which has it already; name one of them",
                field=f"{field}[{place}]",
            )
    return {name: modules[name] for name in names}


def fingerprint(block: nn.Module) -> str:
    """Digest names, shapes and types of a block's parameters and buffers; shards count whole."""
    # remove_duplicate=False: a tied weight is part of each block that reads it.
    parameters = block.named_parameters(remove_duplicate=False)
    rows = [f"{name} {tuple(each.shape)} {each.dtype}" for name, each in parameters]
    buffers = block.named_buffers(remove_duplicate=False)
    rows += [f"{name} {tuple(each.shape)} {each.dtype}" for name, each in buffers]
    return digest(sorted(rows))


def digest(rows: Iterable[str]) -> str:
    """Give a short digest of lines of text."""
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]
