"""What a module of torch's reaches: attributes, parts and parameters, a forward of its own."""

import collections
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm

from haversack_server.worker.reach_code import of_class

Named = Iterable[tuple[str, Any]]
# Buffers are another facet; a region is wrapped where a module's own forward is.
_MODULE_PARTS = frozenset({"_parameters", "_buffers", "_modules", "forward"})
_OWN = f"{__package__}.regions"


def of_module(module: nn.Module) -> Named:
    """Name attributes, parts and parameters of a module, and the attributes of its class."""
    left_out = _MODULE_PARTS | _derived(module)
    attributes = {
        f".{name}": _without_counts(name, value)
        for name, value in vars(module).items()
        if name not in left_out and not (name.startswith("_") and _is_empty(value))
    }
    parts = {f".{name}": part for name, part in {**module._parameters, **module._modules}.items()}
    own = _own_forward(module)
    return [*attributes.items(), *parts.items(), *own, *of_class(type(module))]


def _without_counts(name: str, value: Any) -> Any:
    """Give hooks in their order: their keys are counted over all hooks of a process."""
    are_hooks = name.startswith("_") and "hooks" in name and isinstance(value, dict)
    return list(value.values()) if are_hooks else value


def _own_forward(module: nn.Module) -> Named:
    """Name the forward that was put on a module, whether or not it is a region; else nothing."""
    forward = vars(module).get("forward")
    while getattr(forward, "__module__", "") == _OWN:
        forward = getattr(forward, "__wrapped__", None)
    is_of_class = getattr(forward, "__func__", None) is type(module).forward
    return () if forward is None or is_of_class else [(".forward", forward)]


def _derived(module: nn.Module) -> set[str]:
    """Name weights that a hook of torch's sets before each forward, from ``weight_orig``, say.

    They follow from parameters and buffers.
    """
    hooks = module._forward_pre_hooks.values()
    normed = {hook.name for hook in hooks if isinstance(hook, SpectralNorm)}
    return normed | {hook._tensor_name for hook in hooks if isinstance(hook, BasePruningMethod)}


def _is_empty(value: Any) -> bool:
    return value is None or (type(value) in (dict, collections.OrderedDict, set) and not value)
