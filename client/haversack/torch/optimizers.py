"""What stands around the blocks of a step: the optimizer with its state, buffers, arguments.

An optimizer steps fake parameters for a while; its groups and its state are put back afterwards.
Knows no blocks.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.profile import Profile
from haversack.torch.fakes import faked
from haversack.torch.known import answer
from haversack.torch.storages import Record, Storages
from haversack.torch.workload import Workload
from haversack.training import Optimizer

NO_OPTIMIZER = "the optimizer's step and its state: the workload has none"
_READ = torch.ops.aten._local_scalar_dense.default
_SMALL = 1e-3  # a rate of learning; memory does not depend on it
_MAKERS: dict[Optimizer, Callable[[list[Any]], torch.optim.Optimizer]] = {
    Optimizer.ADAMW: torch.optim.AdamW,
    Optimizer.ADAMW_FOREACH: lambda given: torch.optim.AdamW(given, foreach=True),
    Optimizer.SGD: lambda given: torch.optim.SGD(given, lr=_SMALL),
    Optimizer.SGD_MOMENTUM: lambda given: torch.optim.SGD(given, lr=_SMALL, momentum=0.9),
    Optimizer.RMSPROP: torch.optim.RMSprop,
    Optimizer.ADAGRAD: torch.optim.Adagrad,
}


def with_optimizer(workload: Workload, named: Optimizer = Optimizer.UNSPECIFIED) -> Workload:
    """Give a workload the optimizer that is named; without a name its own, or else AdamW."""
    model: Any = workload.model
    if (workload.optimizer is not None and not named) or not isinstance(model, nn.Module):
        return workload
    kind = named or Optimizer.ADAMW
    if kind not in _MAKERS:
        known = ", ".join(each.name for each in _MAKERS)
        raise InvalidRequestError(
            f"{kind.name} is none of torch.optim's that could be stepped here; name one of {known},"
            " or give the workload its optimizer",
            field="training.optimizer",
        )
    trained = [each for each in model.parameters() if each.requires_grad]
    return replace(workload, optimizer=_MAKERS[kind](trained)) if trained else workload


def with_surroundings(profile: Profile, workload: Workload, model: nn.Module) -> Profile:
    """Add to a profile what stands beside its blocks; the optimizer is stepped under fakes."""
    profile = replace(
        profile, standing_bytes=standing_bytes(workload, model), loss=loss_in_words(workload)
    )
    optimizer = workload.optimizer
    if optimizer is None:
        return profile
    state, step = _stepped(optimizer, model)
    return replace(
        profile,
        optimizer_state_bytes=state,
        optimizer_step_bytes=step,
        optimizer_class=type(optimizer).__name__,
        not_profiled=tuple(each for each in profile.not_profiled if each != NO_OPTIMIZER),
    )


def standing_bytes(workload: Workload, model: nn.Module) -> int:
    """Add up what stands through a whole step beside model states: buffers and arguments."""
    return storage_bytes([list(model.buffers()), workload.args, dict(workload.kwargs)])


def loss_in_words(workload: Workload) -> str:
    """Say where the loss of a workload's step comes from."""
    return "the model's output" if workload.loss is None else "the workload's own"


def _stepped(optimizer: torch.optim.Optimizer, model: nn.Module) -> tuple[int, int]:
    """Give the bytes of the state after a step, and the most that the next step adds."""
    real = parameters_by_name(model)
    try:
        with faked(model) as mode, stepping(optimizer, real, parameters_by_name(model), mode), mode:
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            return storage_bytes(dict(optimizer.state)), _most_added(optimizer)
    except Exception as error:
        raise NotSupportedError(
            f"{type(optimizer).__name__} cannot be stepped without data: {error}; profile without "
            "the workload's optimizer, and name one in the plan's training"
        ) from error


def _most_added(optimizer: torch.optim.Optimizer) -> int:
    record = Record()
    storages: Any = Storages(record, lambda *_: None)
    with storages:
        optimizer.step()
        storages.end()
    live = most = 0
    for event in record.events:
        live += event.delta_bytes
        most = max(most, live)
    return most


def parameters_by_name(model: nn.Module) -> dict[str, torch.Tensor]:
    """Name every parameter in every place that it has, ties included."""
    return dict(model.named_parameters(remove_duplicate=False))


@contextmanager
def stepping(
    optimizer: torch.optim.Optimizer | None,
    real: Mapping[str, torch.Tensor],
    fake: Mapping[str, torch.Tensor],
    mode: FakeTensorMode,
) -> Iterator[None]:
    """Have an optimizer step the fake parameters, without a state, until the end of the ``with``.

    What it updates beside the model's parameters is made fake too.
    """
    if optimizer is None:
        yield
        return
    twins = {id(tensor): fake[name] for name, tensor in real.items()}
    before = [group["params"] for group in optimizer.param_groups]
    state = optimizer.state
    try:
        for group in optimizer.param_groups:
            group["params"] = [_twin(each, twins, mode) for each in group["params"]]
        optimizer.state = defaultdict(dict)
        with mock.patch.object(optimizer, "step", _by_any_number(optimizer.step)):
            yield
    finally:
        optimizer.state = state
        for group, parameters in zip(optimizer.param_groups, before, strict=True):
            group["params"] = parameters


def _by_any_number(step: Callable[..., Any]) -> Callable[..., Any]:
    def stepped(*args: Any, **kwargs: Any) -> Any:
        mode: Any = _AnyNumber()  # type: ignore[no-untyped-call]
        with mode:
            return step(*args, **kwargs)

    return stepped


class _AnyNumber(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives 1 for a number that an optimizer reads of its gradients, as Adafactor reads norms.

    It scales an update by it; which tensors there are does not depend on it.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is _READ and isinstance(args[0], FakeTensor) and answer(func, args) is None:
            return 1.0 if args[0].dtype.is_floating_point else True
        return func(*args, **(kwargs or {}))


def _twin(tensor: torch.Tensor, twins: dict[int, torch.Tensor], mode: FakeTensorMode) -> Any:
    if id(tensor) not in twins:
        twins[id(tensor)] = mode.from_tensor(tensor)
    return twins[id(tensor)]


def storage_bytes(value: Any) -> int:
    """Add up the storages of a nest of tensors, each once."""
    leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    storages = [leaf.untyped_storage() for leaf in leaves if leaf.layout is torch.strided]
    return sum({each._cdata: each.nbytes() for each in storages}.values())


def forget_gradients(given: Any) -> None:
    """Let go of the gradients of a step's arguments: every microbatch has arguments of its own."""
    for leaf in tree_leaves(given):
        if isinstance(leaf, torch.Tensor) and leaf.is_leaf:
            leaf.grad = None
