"""One training step of a workload for real, on the device that its model is on.

Runs once under the tracker of storages, and again under a clock alone: a tracker slows down what it
follows. Computes gradients and drops them; the model and the generators are left as they were.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from haversack import checks
from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.profile import Profile
from haversack.torch.fake_step import FakeStep
from haversack.torch.fakes import left_as_it_was
from haversack.torch.roofline import Roofline
from haversack.torch.storages import Record, Storages
from haversack.torch.tables import OF_FAKES
from haversack.torch.watching import Watch
from haversack.torch.workload import Workload


def device_of(workload: Workload, asked: str) -> torch.device:
    """Give the device of a workload, which must be of the type that is asked for."""
    model: Any = workload.model
    found: set[torch.device] = {each.device for each in model.parameters()}
    try:
        device = torch.device(asked)
    except (RuntimeError, TypeError) as unknown:
        raise InvalidRequestError(
            f"{checks.shortly(asked)} is no device of PyTorch; give cpu or cuda", field="device"
        ) from unknown
    if {each.type for each in found} != {device.type} or len(found) != 1:
        said = ", ".join(sorted(map(str, found))) or "no device"
        raise InvalidRequestError(
            f"a profile on {asked} runs the step there, and the model is on {said}; move the model "
            "and its arguments before",
            field="device",
        )
    return found.pop()


def on_device(profile: Profile, device: torch.device) -> Profile:
    """Say of a profile that it was measured, and where."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    left = tuple(each for each in profile.not_profiled if each not in OF_FAKES)
    others = f"kernels of other devices than {name}, which may save other tensors"
    return replace(
        profile,
        basis=Basis.MEASURED,
        device=name,
        timed_on=name,
        # States of the CPU's generator are on the host.
        region_bytes=profile.region_bytes if device.type == "cpu" else 0,
        not_profiled=(*left, others),
    )


class RealStep(FakeStep):
    """A step of real tensors; nothing has a stand-in. With a clock no storage is followed."""

    def __init__(
        self,
        workload: Workload,
        watch: Watch,
        options: Mapping[str, str],
        segments: Iterable[Sequence[str]] = (),
        *,
        device: torch.device,
        is_timed: bool = False,
    ) -> None:
        super().__init__(workload, watch, options, segments)
        self._device = device
        self._is_timed = is_timed

    def _placed(self) -> contextlib.AbstractContextManager[Any]:
        return _as_it_was(self._model)

    def _given(self, mode: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self._workload.args, dict(self._workload.kwargs)

    def _followed(self) -> Any:
        if self._is_timed:
            return _Unfollowed()
        return _OnDevice(self._watch.record, self._watch.heard, self._device)


class _OnDevice(Storages):  # type: ignore[no-untyped-call]
    """Follows the storages of one type of device; those of the host beside it are not its own."""

    def __init__(self, record: Record, heard: Callable[..., None], device: torch.device) -> None:
        super().__init__(record, heard)
        self._device = device

    def _follow(self, storage: torch.UntypedStorage) -> None:
        if storage.device.type == self._device.type:
            super()._follow(storage)


class _Unfollowed(contextlib.nullcontext[None]):
    """Stands where storages are followed, and follows none."""

    def end(self) -> None:
        """Do nothing."""


class TimedWatch(Watch):
    """Watches a step without a tracker; the time of a block's recomputation is a clock's."""

    def __init__(self, names: Iterable[str], roofline: Roofline, device: torch.device) -> None:
        super().__init__(names, roofline)
        self._device = device

    def _run(self, name: str, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if not self.record.in_backward:
            return super()._run(name, forward, args, kwargs)
        start_ns = self._now_ns()
        try:
            return super()._run(name, forward, args, kwargs)
        finally:  # a recomputation ends by an exception, where PyTorch stops it early
            self.seen[name].recomputed_ns += self._now_ns() - start_ns

    def _now_ns(self) -> int:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter_ns()


@contextlib.contextmanager
def _as_it_was(model: nn.Module) -> Iterator[contextlib.AbstractContextManager[None]]:
    """Run without gradients of before; put these, buffers and generators back afterwards."""
    buffers = [(each, each.detach().clone()) for each in model.buffers()]
    gradients = [(each, each.grad) for each in model.parameters()]
    cards = {each.device for each, _ in gradients if each.device.type == "cuda"}
    with left_as_it_was(model), torch.random.fork_rng(devices=list(cards)):
        for parameter, _ in gradients:
            parameter.grad = None
        try:
            yield contextlib.nullcontext()
        finally:
            with torch.no_grad():
                for parameter, gradient in gradients:
                    parameter.grad = gradient
                for buffer, value in buffers:
                    buffer.copy_(value)
