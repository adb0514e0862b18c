"""Finds a workload: a built-in by name, or an entry point, whose factory is called once.

The prefix rule is applied here again, next to the import that it guards.
"""

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from haversack.errors import HaversackError
from haversack.run import WorkloadReference
from haversack.torch import TrainingWorkload, Workload
from haversack_server.verify.entry_points import check_allowed, covers
from haversack_server.worker.errors import BadWorkloadError, is_out_of_memory, text_of
from haversack_server.worker.fork import print_fault
from haversack_server.worker.zoo import FACTORIES, TRAININGS

_HELD = (
    "a job may write in its working folder alone, in which /dev/shm is not (so no workers of a "
    "DataLoader), and start no program"
)
_LONGEST_NAME = 200
Built = TypeVar("Built", Workload, TrainingWorkload)


def load(reference: WorkloadReference, *, allow: Sequence[str], path: Sequence[str]) -> Workload:
    """Build the workload; BadWorkloadError says why it cannot be."""
    return _built(Workload, reference, allow, path)


def load_training(
    reference: WorkloadReference, *, allow: Sequence[str], path: Sequence[str]
) -> TrainingWorkload:
    """Build the training of a resume job; BadWorkloadError says why it cannot be."""
    return _built(TrainingWorkload, reference, allow, path)


def _built(
    kind: type[Built], reference: WorkloadReference, allow: Sequence[str], path: Sequence[str]
) -> Built:
    label = _short(reference.name or reference.entry_point)
    built_in: Mapping[str, Any] = {**FACTORIES, **TRAININGS}
    factory = built_in[reference.name] if reference.name else _import(reference, allow, path)
    arguments = json.loads(reference.args_json or "{}")
    try:
        workload = factory(**arguments)
    except MemoryError:
        raise
    except BaseException as error:  # whatever user code raises, SystemExit too, is the answer
        if is_out_of_memory(error):
            raise
        print_fault()
        raise BadWorkloadError(f"{label} raised {_said(error)}") from error
    if not isinstance(workload, kind):
        found = type(workload).__name__
        raise BadWorkloadError(
            f"{label} returned a {found}; a haversack.torch.{kind.__name__} would do{_for(found)}"
        )
    return workload


def _for(found: str) -> str:
    known = {
        Workload.__name__: ", for a resume job",
        TrainingWorkload.__name__: ", or a resume job, which is about training that goes on",
    }
    return known.get(found, "")


def _import(reference: WorkloadReference, allow: Sequence[str], path: Sequence[str]) -> Any:
    check_allowed(reference.entry_point, allow, field="workload.entry_point")
    sys.path[:0] = [folder for folder in path if folder not in sys.path]
    module_name, _, attribute = reference.entry_point.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except BaseException as error:  # a module may raise anything while it is loaded
        print_fault()
        raise BadWorkloadError(
            f"{_short(module_name)} cannot be imported: {_said(error)}"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise BadWorkloadError(f"{_short(module_name)} has no {_short(attribute)!r}")
        found = getattr(found, name)
    if not callable(found):
        kind = type(found).__name__
        raise BadWorkloadError(f"{_short(reference.entry_point)} is a {kind}, not a factory")
    _check_home(reference.entry_point, found, allow)
    return found


def _check_home(entry_point: str, factory: Any, allow: Sequence[str]) -> None:
    # An allowed module may have imported what nobody meant to allow: os.system, say.
    home = getattr(factory, "__module__", None) or type(factory).__module__
    if not any(covers(prefix, f"{home}:") for prefix in allow):
        raise BadWorkloadError(
            f"{_short(entry_point)} is defined in {_short(home)}, which is not allowed; name a "
            "function that an allowed module defines"
        )


def _short(name: str) -> str:
    """Cut a name that would burst a sentence."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _said(error: BaseException) -> str:
    text = text_of(error).strip().partition("\n")[0]
    if isinstance(error, HaversackError):
        return text
    said = f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__
    return f"{said}; {_HELD}" if isinstance(error, PermissionError) else said
