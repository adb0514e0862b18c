"""The tensors and generators of a workload that a run leaves behind, by name.

Inputs that ask for a gradient, parameters, buffers, and generators that the workload holds itself.
A parameter that is no module's (a tensor in a closure, say) is found by the path that reaches it,
and so are the buffers of a module that is none of the model's (one in a plain list, say). Frozen
parameters are ``haversack_server.worker.frozen``'s. What asks for a gradient only since the step
is found after it.
"""

import functools
import gc
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, Dataset, Sampler

from haversack.torch import Workload
from haversack.verify import Facet
from haversack_server.worker import frozen, reach, rng
from haversack_server.worker.comparable import comparable
from haversack_server.worker.errors import BadWorkloadError
from haversack_server.worker.known_tensors import Known, known
from haversack_server.worker.state import Snapshot, is_weight, walk
from haversack_server.worker.values import Values, flatten

# Where others keep what a parameter was given: Megatron-LM, and Opacus for each sample.
_OTHER_GRADIENTS = ("main_grad", "grad_sample")
_UNORDERED = (set, frozenset, weakref.WeakSet)
_MAPPINGS = (dict, weakref.WeakKeyDictionary)
_OF_INPUTS = ("args", "kwargs")


@dataclass(frozen=True, slots=True)
class Leaves:
    """What to look at after the step; ``stood`` is what all parameters were before it.

    ``late`` names those that ask for a gradient only since the step.
    """

    inputs: Mapping[str, torch.Tensor]
    parameters: Mapping[str, torch.Tensor]
    modules: Mapping[str, nn.Module]
    generators: Mapping[str, Any]
    stood: Mapping[str, Known] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def values(
        self,
        outputs: list[Any],
        losses: list[torch.Tensor],
        taken: Mapping[str, torch.Tensor | str | None] | None = None,
        taken_of_inputs: Mapping[str, torch.Tensor | str | None] | None = None,
        written: Collection[str] = (),
    ) -> dict[str, Values]:
        """Name the values of every facet, in the order of the facets.

        ``taken`` are gradients that are gone from parameters, and how often hooks ran; ``written``
        names trained parameters that the step has written.
        """
        named: Values = {}
        for place, output in enumerate(outputs):
            named |= flatten(output, "output" if len(outputs) == 1 else f"output {place + 1}")
        for place, loss in enumerate(losses):
            named["loss" if len(losses) == 1 else f"loss {place + 1}"] = loss
        buffers = buffers_of(self.modules)
        return {
            Facet.OUTPUTS.name: {name: _detached(value) for name, value in named.items()},
            Facet.INPUT_GRADIENTS.name: {**_gradients(self.inputs), **(taken_of_inputs or {})},
            Facet.PARAMETER_GRADIENTS.name: {
                **_gradients(self.parameters),
                **_kept_elsewhere(self.parameters),
                **(taken or {}),
            },
            Facet.BUFFERS.name: {
                **{name: frozen.held(buffer) for name, buffer in buffers.items()},
                **frozen.left(self.modules, self.stood),
                **{name: frozen.held(self.parameters[name]) for name in written},
            },
        }

    def take_written(self, state: Snapshot) -> tuple[str, ...]:
        """Name the trained parameters that the steps wrote, and take them out of the state."""
        said = {name: state.left_by_steps(each) for name, each in self.parameters.items()}
        stood = {name: each.said for name, each in self.stood.items()}
        found = tuple(n for n, now in said.items() if now and stood.get(n, now) != now)
        for name in found:
            state.take(self.parameters[name])
        return found

    def as_in(self, plain: Mapping[str, Values], own: dict[str, Values]) -> dict[str, Values]:
        """Give the values of a run in the form that those of the plain run have.

        A late leaf that the plain run has not is none: the reentrant variant makes leaves of what
        goes into a region, and the model may hold one.
        """
        buffers = Facet.BUFFERS.name
        held = {
            facet: {
                name: value
                for name, value in own[facet].items()
                if name in plain[facet] or name not in self.late
            }
            for facet in (Facet.INPUT_GRADIENTS.name, Facet.PARAMETER_GRADIENTS.name)
        }
        return {**own, **held, buffers: frozen.as_in(plain[buffers], own[buffers], self.modules)}

    def with_late(self, found: Mapping[str, torch.Tensor]) -> "Leaves":
        """Add those leaves, by their paths, that have a gradient since the step only.

        A module's own replaces the one of that name.
        """
        known = self._ids()
        own = {id(each): name for name, each in _own_parameters(self.modules.get(""))}
        new = {path: each for path, each in found.items() if id(each) not in known}
        late = {own.get(id(each), path): each for path, each in new.items() if each.is_leaf}
        inputs = {
            name: each
            for name, each in late.items()
            if id(each) not in own and name.startswith(_OF_INPUTS)
        }
        return replace(
            self,
            inputs={**self.inputs, **inputs},
            parameters={**self.parameters, **{n: w for n, w in late.items() if n not in inputs}},
            late=frozenset(late),
        )

    def retained(self, found: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Spell the gradients that the model keeps of what is no leaf, by their paths."""
        known = self._ids()
        kept = {n: t for n, t in found.items() if not t.is_leaf and id(t) not in known}
        gradients: dict[str, Any] = {f"{name}.grad": t.grad for name, t in kept.items()}
        return {name: " ".join(reach.tensor_digest(each)) for name, each in gradients.items()}

    def generator_states(self) -> dict[str, str]:
        """Digest the states of the generators that the workload holds, by their paths."""
        return {path: rng.held_state(each) or "" for path, each in self.generators.items()}

    def _ids(self) -> set[int]:
        return {id(each) for each in (*self.inputs.values(), *self.parameters.values())}

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
        return replace(self, parameters=parameters, stood=_standing(self.modules, parameters))


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
    for path, thing, _ in walk(roots(workload), _optimized(workload), look=_looked_at):
        if rng.is_generator(thing):
            generators[path] = thing
        elif isinstance(thing, nn.Module) and id(thing) not in inside:
            modules[path] = thing
            inside |= {id(module) for module in thing.modules()}
        elif is_weight(thing) and id(thing) not in known:
            parameters[path] = thing
    return Leaves(inputs, parameters, modules, generators, _standing(modules, parameters))


def _standing(
    modules: Mapping[str, nn.Module], parameters: Mapping[str, torch.Tensor]
) -> dict[str, Known]:
    """Take note of all parameters; of a trained one that has no shape yet there is no note."""
    trained = {name: known(each) for name, each in parameters.items() if not is_lazy(each)}
    return {**trained, **frozen.standing(modules)}


def _optimized(workload: Workload) -> dict[str, torch.Tensor]:
    """Name what an optimizer trains, which state leaves out: for what nothing else holds."""
    groups: Any = getattr(workload.optimizer, "param_groups", ())
    held = ((place, p) for place, group in enumerate(groups) for p in group["params"])
    return {f"optimizer.param_groups[{place}][{n}]": p for n, (place, p) in enumerate(held)}


def _looked_at(thing: Any) -> tuple[str, reach.Children]:
    """Look where a thing leads; what tensors hold is not asked.

    Members and keys that have no name from one process to the next are held from here on.
    """
    if isinstance(thing, torch.Tensor):
        return "", reach.held_with_hooks(thing)
    said, children = reach.look(thing)
    return said, [*children, *_numbered(thing), *_of_library(thing)]


def _of_library(thing: Any) -> Iterator[tuple[str, Any]]:
    """Name what objects of libraries hold that is no state."""
    if isinstance(thing, functools._lru_cache_wrapper):
        held = (each for each in gc.get_referents(thing) if each is not thing.__wrapped__)
        yield from ((f"[cached {place}]", each) for place, each in enumerate(held))
    elif isinstance(thing, Dataset | Sampler | DataLoader):
        yield from ((f".{name}", each) for name, each in vars(thing).items())


def _numbered(thing: Any) -> Iterator[tuple[str, Any]]:
    is_one = isinstance(thing, _UNORDERED)
    word = "member" if is_one else "key"
    for place, each in enumerate(thing if is_one or isinstance(thing, _MAPPINGS) else ()):
        if not isinstance(each, reach.SCALARS):
            yield f"[{word} {place}]", each


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


def _gradients(tensors: Mapping[str, torch.Tensor]) -> Values:
    return {name: _detached(tensor.grad) for name, tensor in tensors.items()}


def _kept_elsewhere(parameters: Mapping[str, torch.Tensor]) -> Values:
    named = ((n, p, attribute) for n, p in parameters.items() for attribute in _OTHER_GRADIENTS)
    found = {f"{n}.{attribute}": getattr(p, attribute, None) for n, p, attribute in named}
    return {n: _detached(each) for n, each in found.items() if isinstance(each, torch.Tensor)}


def _detached(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_meta:
        raise BadWorkloadError(
            "the step's tensors are on the device meta, which holds no values that could be "
            "compared; build the workload on the CPU"
        )
    return comparable(value)
