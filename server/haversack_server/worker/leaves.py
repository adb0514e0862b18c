"""The tensors and generators of a workload that a run leaves behind, by name.

Inputs that ask for a gradient, parameters, buffers, and generators that the workload holds itself.
A parameter that is no module's (a tensor in a closure, say) is found by the path that reaches it,
and so are the buffers of a module that is none of the model's (one in a plain list, say). Frozen
parameters are ``haversack_server.worker.frozen``'s.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import torch
from torch import nn

from haversack.torch import Workload
from haversack.torch.sharding import own_part
from haversack.verify import Facet
from haversack_server.worker import frozen, reach
from haversack_server.worker.compare import Values, flatten
from haversack_server.worker.errors import BadWorkloadError
from haversack_server.worker.known_tensors import Known
from haversack_server.worker.rng import is_generator
from haversack_server.worker.state import walk


@dataclass(frozen=True, slots=True)
class Leaves:
    """What to look at after the step; ``stood`` is what frozen parameters were before it."""

    inputs: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    modules: Mapping[str, nn.Module]
    generators: Mapping[str, Any]
    stood: Mapping[str, Known] = field(default_factory=dict)

    def values(
        self,
        outputs: list[Any],
        losses: list[torch.Tensor],
        taken: Mapping[str, torch.Tensor | str | None] | None = None,
    ) -> dict[str, Values]:
        """Name the values of every facet, in the order of the facets.

        ``taken`` are gradients that are gone from parameters, and how often hooks ran.
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
                **{name: frozen.held(buffer) for name, buffer in buffers.items()},
                **frozen.left(self.modules, self.stood),
            },
        }

    def as_in(self, plain: Mapping[str, Values], own: dict[str, Values]) -> dict[str, Values]:
        """Give the values of a run in the form that those of the plain run have."""
        buffers = Facet.BUFFERS.name
        return {**own, buffers: frozen.as_in(plain[buffers], own[buffers], self.modules)}

    def divide_gradients(self, divisor: float) -> None:
        """Divide each gradient that comes to an input or a parameter, from now on."""
        leaves = {id(each): each for each in (*self.inputs.values(), *self.parameters.values())}
        for each in leaves.values():
            untyped: Any = each
            untyped.register_hook(lambda gradient: gradient / divisor)

    def frozen_ids(self) -> set[int]:
        """Give the ids of the parameters that are compared as buffers are."""
        return {id(each) for each in frozen.of(self.modules).values()}

    def standing(self, parameters: Mapping[str, torch.Tensor]) -> "Leaves":
        """Give these with other parameters, where the model was spread over ranks meanwhile."""
        return replace(self, parameters=parameters, stood=frozen.standing(self.modules))


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
    for path, thing, _ in walk(roots(workload), look=_looked_at):
        if is_generator(thing):
            generators[path] = thing
        elif isinstance(thing, nn.Module) and id(thing) not in inside:
            modules[path] = thing
            inside |= {id(module) for module in thing.modules()}
        elif _is_weight(thing) and id(thing) not in known:
            parameters[path] = thing
    return Leaves(inputs, parameters, modules, generators, frozen.standing(modules))


def _looked_at(thing: Any) -> tuple[str, reach.Children]:
    """Look where a thing leads; what tensors hold is not asked."""
    is_tensor = isinstance(thing, torch.Tensor)
    return ("", reach.held_with_hooks(thing)) if is_tensor else reach.look(thing)


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


def _own_parameters(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(model, nn.Module):
        yield from ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def _is_weight(thing: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(thing, torch.Tensor) and thing.requires_grad and thing.is_leaf


def _gradients(tensors: Mapping[str, torch.Tensor]) -> Values:
    return {name: _detached(tensor.grad) for name, tensor in tensors.items()}


def _detached(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_meta:
        raise BadWorkloadError(
            "the step's tensors are on the device meta, which holds no values that could be "
            "compared; build the workload on the CPU"
        )
    return own_part(value.detach())
