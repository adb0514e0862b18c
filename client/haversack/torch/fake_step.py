"""One training step of a workload under fake tensors, each block by a given option.

Knows how a step runs and what cannot be run so; reads no figures.
"""

import contextlib
import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.parallel import DistributedDataParallel

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.torch.casting import casting
from haversack.torch.fakes import Fakes, fake_of, faked
from haversack.torch.given import check_is_workload
from haversack.torch.loss import loss_of
from haversack.torch.own_calls import refusing_checkpoints, refusing_kept_graphs
from haversack.torch.policy import parsed
from haversack.torch.regions import Region, caching_configs
from haversack.torch.segments import Segment
from haversack.torch.storages import Storages
from haversack.torch.watching import Watch
from haversack.torch.workload import Workload

_DEPENDS = (DataDependentOutputException, DynamicOutputShapeException)


def check_workload(workload: Workload) -> nn.Module:
    """Give the workload's model, or refuse what cannot be run under fake tensors."""
    check_is_workload(workload)
    model = workload.model
    if not isinstance(model, nn.Module):
        raise InvalidRequestError(
            f"a {type(model).__name__} has no blocks; give a torch.nn.Module", field="model"
        )
    for name, module in model.named_modules():
        # By name: to import torch.compile and DTensor takes seconds.
        if isinstance(module, DistributedDataParallel | torch.jit.ScriptModule) or (
            hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
        ):
            raise NotSupportedError(
                f"{name or 'the model'} is a {type(module).__name__}, compiled or wrapped; profile "
                "the model before it is"
            )
        if getattr(module, "gradient_checkpointing", False):
            raise NotSupportedError(
                f"{name or 'the model'} checkpoints by itself; switch that off before"
            )
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise InvalidRequestError(
                f"{name} has no shape yet; call the model once before it is profiled", field="model"
            )
        if hasattr(parameter, "placements"):
            raise NotSupportedError(f"{name} is sharded; profile the model before fully_shard")
    _check_optimizer(workload, model)
    return model


def _check_optimizer(workload: Workload, model: nn.Module) -> None:
    if workload.optimizer is None:
        return
    stepped = {id(each) for group in workload.optimizer.param_groups for each in group["params"]}
    if stepped.isdisjoint(map(id, model.parameters())):
        raise InvalidRequestError(
            "the optimizer steps none of the model's parameters; make it of this model's",
            field="workload.optimizer",
        )


class FakeStep:
    """Runs a step once; the watch has what it saw."""

    def __init__(
        self,
        workload: Workload,
        watch: Watch,
        options: Mapping[str, str],
        segments: Iterable[Sequence[str]] = (),
        *,
        fakes: Fakes | None = None,
        stubs: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._fakes = fakes or Fakes()
        self._stubs = stubs or {}
        self._segments = tuple(segments)
        self._made_segments: list[Segment] = []
        self._workload = workload
        self._model: nn.Module = workload.model  # type: ignore[assignment]
        self._names = {id(module): name for name, module in self._model.named_modules()}
        self._watch = watch
        self._options = options

    def run(self, *, backward: bool = True) -> None:
        """Run forward, loss and backward; every storage is followed from its making to its end.

        Without ``backward`` only the model's forward is run, and nothing is kept for one: what is
        alive is what the model's code holds.
        """
        names = self._names
        caching = list(caching_configs(self._model))
        # The collector would free what lies in cycles at moments of its own.
        collects = gc.isenabled()
        gc.disable()
        try:
            for config in caching:
                config.use_cache = False
            units = [self._model, *map(self._model.get_submodule, self._watch.seen)]
            cast = casting(units, self._fakes.computed_in)
            with refusing_kept_graphs(names), cast, self._placed() as mode:
                self._watch.begin(self._model)
                self._put_blocks()
                self._step(mode, backward)
        except Exception as error:
            refusal = refusal_of(error, names)
            if refusal is None:
                raise  # the user's own
            raise NotSupportedError(refusal) from error
        finally:
            for config in caching:
                config.use_cache = True
            if collects:
                gc.enable()

    def _placed(self) -> contextlib.AbstractContextManager[Any]:
        """Have the model as the step needs it; gives the mode that the step runs in."""
        return faked(self._model, self._fakes)

    def _given(self, mode: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments of the step."""
        given: tuple[tuple[Any, ...], dict[str, Any]] = fake_of(
            mode, (self._workload.args, dict(self._workload.kwargs))
        )
        return given

    def _followed(self) -> Any:
        """Give what follows the storages of the step."""
        return Storages(self._watch.record, self._watch.heard)

    def _put_blocks(self) -> None:
        blocks = {name: self._model.get_submodule(name) for name in self._watch.seen}
        for name, block in blocks.items():
            stub = self._stubs.get(name)
            block.__dict__["forward"] = stub or self._watch.inside(name, block)
        members: dict[str, Any] = {}
        for names in self._segments:
            segment = Segment({name: blocks[name] for name in names})
            segment.leave_generators()
            self._made_segments.append(segment)
            members.update(zip(names, segment.members, strict=True))
        for name, block in blocks.items():
            option = "save" if name in self._stubs else self._options.get(name, "save")
            forward = block.forward if option == "save" else _region(name, block, option)
            block.__dict__["forward"] = self._watch.around(name, members.get(name, forward))

    def _step(self, mode: Any, backward: bool) -> None:
        workload, record = self._workload, self._watch.record
        args, kwargs = self._given(mode)
        storages = self._followed()
        if not backward:
            saving = saved_tensors_hooks(self._watch.saved, _forget)
            with mode, storages, saving, refusing_checkpoints(self._names):
                output = self._model(*args, **kwargs)
                storages.end()
            return
        with mode, storages:
            output = self._model(*args, **kwargs)
            self._watch.returned(output)
            loss = loss_of(workload, output).tensor
            if workload.between_forward_and_backward is not None:
                workload.between_forward_and_backward()
            record.in_backward = True
            torch.autograd.backward(loss)
            storages.end()  # while the output is held, as a caller holds it
            for segment in self._made_segments:
                for (place, _), size_bytes in segment.skipping.items():
                    self._watch.skip(segment.names[place], size_bytes)
            del output


def _forget(tensor: Any) -> Any:
    """Give nothing back: there will be no backward."""
    return None


def _region(name: str, block: nn.Module, option: str) -> Region:
    policy = parsed(option)
    selective = policy.contexts() if policy is not None else None
    region = Region(name, block, selective=selective)
    region.leave_generators()
    return region


def refusal_of(error: Exception, names: Mapping[int, str]) -> str | None:
    """Say in which module fake tensors ended, and why; None for what any step would raise."""
    where, is_of_fakes = "the model", False
    trace = error.__traceback__
    while trace is not None:
        where = names.get(id(trace.tb_frame.f_locals.get("self"))) or where
        is_of_fakes |= trace.tb_frame.f_code.co_filename == fake_tensor.__file__
        trace = trace.tb_next
    if isinstance(error, _DEPENDS):
        return (
            f"{where} cannot be profiled: the shapes or the path of its step depend on data or on "
            f"a draw (layerdrop), at {error.func}"
        )
    if is_of_fakes:
        return f"{where} cannot be profiled: an operation raised under fake tensors: {error}"
    return None
