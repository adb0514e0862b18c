"""The tensors and generators of a workload that a run leaves behind, by name.

Inputs that ask for a gradient, parameters, buffers, and generators that the workload holds itself.
A parameter that is no module's (a tensor in a closure, say) is found by the path that reaches it,
and so are the buffers of a module that is none of the model's (one in a plain list, say).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import nn

from haversack.torch import Workload
from haversack.torch.sharding import own_part
from haversack.verify import Facet
from haversack_server.worker.compare import Values, flatten
from haversack_server.worker.reach import tensor_digest
from haversack_server.worker.rng import is_generator
from haversack_server.worker.state import walk


@dataclass(frozen=True, slots=True)
class Leaves:
    """What to look at after the step."""

    inputs: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    modules: Mapping[str, nn.Module]
    generators: Mapping[str, Any]

    def values(
        self,
        outputs: list[Any],
        losses: list[torch.Tensor],
        taken: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, Values]:
        """Name the values of every facet, in the order of the facets.

        ``taken`` are gradients that hooks have taken away from parameters.
        """
        named: Values = {}
        for place, output in enumerate(outputs):
            named |= flatten(output, "output" if len(outputs) == 1 else f"output {place + 1}")
        for place, loss in enumerate(losses):
            named["loss" if len(losses) == 1 else f"loss {place + 1}"] = loss
        buffers = buffers_of(self.modules)
        return {
            Facet.OUTPUTS.name: {name: _detached(value) for name, value in named.items()},
            Facet.INPUT_GRADIENTS.name: _gradients(self.inputs),
            Facet.PARAMETER_GRADIENTS.name: {**_gradients(self.parameters), **(taken or {})},
            Facet.BUFFERS.name: {
                **{name: buffer.detach() for name, buffer in buffers.items()},
                **_frozen(self.modules),
            },
        }


def find_leaves(workload: Workload) -> Leaves:
    """Look a workload through; inputs that are no leaves are told to keep their gradient."""
    given = flatten(workload.args, "args") | flatten(dict(workload.kwargs), "kwargs")
    tensors = {n: value for n, value in given.items() if isinstance(value, torch.Tensor)}
    inputs = {name: value for name, value in tensors.items() if value.requires_grad}
    for value in inputs.values():
        if not value.is_leaf:
            value.retain_grad()
    known = {id(value) for value in tensors.values()}
    parameters = dict(_own_parameters(workload.model))
    known |= {id(parameter) for parameter in parameters.values()}
    generators: dict[str, Any] = {}
    modules = {"": workload.model} if isinstance(workload.model, nn.Module) else {}
    inside = {id(module) for each in modules.values() for module in each.modules()}
    for path, thing, _ in walk(roots(workload)):
        if is_generator(thing):
            generators[path] = thing
        elif isinstance(thing, nn.Module) and id(thing) not in inside:
            modules[path] = thing
            inside |= {id(module) for module in thing.modules()}
        elif _is_weight(thing) and id(thing) not in known:
            parameters[path] = thing
    return Leaves(inputs, parameters, modules, generators)


def roots(workload: Workload) -> dict[str, object]:
    """Name what a workload consists of, as far as its state may change."""
    return {
        "model": workload.model,
        "args": workload.args,
        "kwargs": dict(workload.kwargs),
        "loss": workload.loss,
        "optimizer": workload.optimizer,
        "between_forward_and_backward": workload.between_forward_and_backward,
        "global_hooks": _hooks_of_all_modules(),
    }


def _hooks_of_all_modules() -> dict[str, object]:
    """Give the hooks that torch calls for every module, by their kind."""
    names = vars(torch.nn.modules.module)
    hooks = {name: held for name, held in names.items() if name.startswith("_global_")}
    return {name: held for name, held in hooks.items() if isinstance(held, dict) and held}


def buffers_of(modules: Mapping[str, nn.Module]) -> dict[str, torch.Tensor]:
    """Name every buffer: of the model by its own name, of other modules after their path."""
    named = (module.named_buffers(prefix=path) for path, module in modules.items())
    return {name: buffer for buffers in named for name, buffer in buffers}


def _frozen(modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """Digest the parameters that ask for no gradient: what changes them is no optimizer."""
    named = (module.named_parameters(prefix=path) for path, module in modules.items())
    held = ((name, each) for parameters in named for name, each in parameters)
    return {name: " ".join(tensor_digest(each)) for name, each in held if not each.requires_grad}


def _own_parameters(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(model, nn.Module):
        yield from ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def _is_weight(thing: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(thing, torch.Tensor) and thing.requires_grad and thing.is_leaf


def _gradients(tensors: Mapping[str, torch.Tensor]) -> Values:
    return {name: _detached(tensor.grad) for name, tensor in tensors.items()}


def _detached(value: Any) -> Any:
    return own_part(value.detach()) if isinstance(value, torch.Tensor) else value
