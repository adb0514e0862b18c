"""Parameters that ask for no gradient: what changes them is no optimizer, so they are as buffers.

Those that a run has written are kept as tensors, which are compared as buffers are; of all others,
which may be most of a large model, only a digest is.
"""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from haversack_server.worker.comparable import comparable
from haversack_server.worker.known_tensors import Known, known, version_of
from haversack_server.worker.reach import tensor_digest
from haversack_server.worker.values import Values


def of(modules: Mapping[str, nn.Module]) -> dict[str, torch.Tensor]:
    """Name the frozen parameters of modules as their buffers are named."""
    named = (module.named_parameters(prefix=path) for path, module in modules.items())
    held = ((name, each) for parameters in named for name, each in parameters)
    return {name: each for name, each in held if not each.requires_grad}


def standing(modules: Mapping[str, nn.Module]) -> dict[str, Known]:
    """Take note of frozen parameters before a step."""
    return {name: known(each) for name, each in of(modules).items()}


def left(modules: Mapping[str, nn.Module], stood: Mapping[str, Known]) -> Values:
    """Give frozen parameters after a step: a digest of what stands as it stood, or the tensor."""
    return {name: _left(each, stood.get(name)) for name, each in of(modules).items()}


def _left(parameter: torch.Tensor, stood: Known | None) -> torch.Tensor | str:
    # What is written through ``data`` counts no version; what is rounded away no content.
    if stood is None or stood.version != version_of(parameter):
        return held(parameter)
    said = _said(parameter)
    return said if said == stood.said else held(parameter)


def as_in(plain: Values, own: Values, modules: Mapping[str, nn.Module]) -> Values:
    """Give frozen parameters of a run as the plain run left them, where just one has written them.

    Of one that the plain run left alone there is no more than a digest.
    """
    found = {}
    for name, parameter in of(modules).items():
        if name in plain and isinstance(plain[name], str) is not isinstance(own[name], str):
            found[name] = _said(parameter) if isinstance(plain[name], str) else held(parameter)
    return {**own, **found}


def held(tensor: torch.Tensor) -> torch.Tensor | str:
    """Give what a tensor holds, of a sharded one its shard; words for one that has no shape yet."""
    return _said(tensor) if is_lazy(tensor) else comparable(tensor)


def _said(tensor: torch.Tensor) -> str:
    return " ".join(tensor_digest(tensor))
