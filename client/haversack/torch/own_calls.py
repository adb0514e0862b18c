"""What a workload's own code may not do in a profiled step: refused at its call, file and line.

A profile's step has one backward, at whose end nothing of the graph is left. Another one that keeps
it (``retain_graph``), or that is differentiated again (``create_graph``), keeps every block's
tensors for longer than a plan counts them. Activations that the model checkpoints by itself are
never seen saved. Knows no figures.
"""

import contextlib
import functools
import pathlib
import sys
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch
import torch.utils.checkpoint

from haversack.errors import NotSupportedError

_OURS = tuple(
    f"{pathlib.Path(str(package.__file__)).parent}/"
    for package in (torch, sys.modules["haversack.torch"])
)


@contextlib.contextmanager
def refusing_kept_graphs(names: Mapping[int, str]) -> Iterator[None]:
    """Refuse backwards of this thread that keep their graph; ``names`` are modules', by identity.

    Raises NotSupportedError with the module, and the file and line of the call.
    """
    # ``backward`` and ``grad`` may be imported by name, so what both of them call is replaced.
    autograd: Any = torch.autograd
    run, here = autograd._engine_run_backward, threading.get_ident()

    @functools.wraps(run)
    def checked(
        outputs: Any, gradients: Any, keeps: bool, creates: bool, *rest: Any, **more: Any
    ) -> Any:
        if threading.get_ident() == here and (keeps or creates):
            asked = "create_graph=True, a double backward" if creates else "retain_graph=True"
            raise _refusal(
                f"runs a backward with {asked}",
                "its graph outlives what a plan counts; profile a workload without it",
                names,
            )
        return run(outputs, gradients, keeps, creates, *rest, **more)

    with _replaced(autograd, "_engine_run_backward", checked):
        yield


@contextlib.contextmanager
def refusing_checkpoints(names: Mapping[int, str]) -> Iterator[None]:
    """Refuse calls of ``torch.utils.checkpoint``, none of which is ours meanwhile."""

    class Refused:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise _refusal(
                "checkpoints its activations by itself",
                "what saving them costs is not seen; profile the model without its own checkpoints",
                names,
            )

        apply = classmethod(lambda cls, *args, **kwargs: cls())

    # What either variant calls first: the function that is called may be imported by name.
    module: Any = torch.utils.checkpoint
    with (
        _replaced(module, "CheckpointFunction", Refused),
        _replaced(module, "_checkpoint_without_reentrant_generator", Refused),
    ):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _refusal(does: str, why: str, names: Mapping[int, str]) -> NotSupportedError:
    frames = list(_frames(sys._getframe(1)))
    own = next((each for each in frames if not each.f_code.co_filename.startswith(_OURS)), None)
    place = f", at {own.f_code.co_filename}:{own.f_lineno}" if own is not None else ""
    module = next((found for each in frames if (found := _module(each, names))), "the step")
    return NotSupportedError(f"{module} cannot be profiled: it {does}{place}, and {why}")


def _module(frame: FrameType, names: Mapping[int, str]) -> str | None:
    found = names.get(id(frame.f_locals.get("self")))
    return "the model" if found == "" else found


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
