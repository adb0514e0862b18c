"""Which modules of a model become regions: those named, or the blocks that a model is a list of."""

from collections.abc import Iterable, Sequence

from torch import nn

from haversack.torch import Workload, blocks
from haversack.verify import VerifyRequest
from haversack_server.worker.errors import BadWorkloadError

_LONGEST_SHOWN = 60  # of a name of a module, which may be of any length


def module_names(model: object) -> dict[int, str]:
    """Name every module by its path, the root by its class; keys are ids."""
    if not isinstance(model, nn.Module):
        return {}
    paths = {id(module): path for path, module in model.named_modules()}
    return {**paths, id(model): type(model).__name__}


def detected_blocks(model: object) -> dict[str, nn.Module]:
    """Find the children of the outermost ``ModuleList``s; a function has none."""
    return blocks.detected_blocks(model) if isinstance(model, nn.Module) else {}


def chosen(workload: Workload, request: VerifyRequest, *, makes_calls: bool) -> tuple[str, ...]:
    """Name the modules to wrap: those asked for; else the blocks, if the model makes no calls."""
    asked = workload.regions
    if request.regions:
        asked = request.regions
    elif request.plan is not None:
        actions = request.plan.actions
        asked = tuple(action.block for action in actions if action.option != "save")
    if asked:
        return tuple(named_blocks(workload.model, asked))
    if makes_calls:
        return ()
    found = tuple(detected_blocks(workload.model)) if asked is None else ()
    if not found:
        why = "has no ModuleList" if asked is None else "its list of regions is empty"
        raise BadWorkloadError(
            f"there is nothing to verify: the model calls no torch.utils.checkpoint and {why}; "
            "name its regions"
        )
    return found


def named_blocks(model: object, names: Sequence[str]) -> dict[str, nn.Module]:
    """Find modules by their path, or by the ending of it that only one module has."""
    if not isinstance(model, nn.Module):
        raise BadWorkloadError(f"regions name modules, but the model is a {type(model).__name__}")
    modules = dict(model.named_modules())
    paths = [_path(name, modules) for name in names]
    return {path: modules[path] for path in paths}


def _path(name: str, paths: Iterable[str]) -> str:
    if name in paths:
        return name
    endings = [path for path in paths if path.endswith(f".{name}")]
    if len(endings) == 1:
        return endings[0]
    if endings:
        raise BadWorkloadError(f"region {name!r} is ambiguous: {', '.join(endings[:3])}")
    known = ", ".join(path[:_LONGEST_SHOWN] for path in list(paths)[:8] if path)
    shown = repr(name)[: 2 * _LONGEST_SHOWN]
    raise BadWorkloadError(f"the model has no module {shown}; its first modules are {known}")
