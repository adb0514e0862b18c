"""The built-in workloads: names, what each is an example of, its verdict, and its arguments.

Their code is in ``haversack_server.worker.zoo``, under the same names; a test holds both together.
"""

import difflib
from dataclasses import replace

from haversack.errors import InvalidRequestError
from haversack.parallelism import Sharding
from haversack.verify import (
    VerifyRequest,
    VerifyResume,
    VerifySchedule,
    VerifyVerdict,
    VerifyWorld,
    WorkloadInfo,
)
from haversack_server.verify import library
from haversack_server.verify.arguments import Argument, check_arguments
from haversack_server.verify.cases import Case, cases
from haversack_server.verify.library import TASKS

_RESUME = VerifyResume()
_SAVING = VerifyWorld(size=2, sharding=Sharding.FSDP2)


def _of_case(case: Case) -> WorkloadInfo:
    return WorkloadInfo(
        name=case.name,
        category=case.category,
        description=case.description,
        expected_verdict=case.verdict,
        expected_different=case.different,
        schedule=case.schedule,
        resume=_RESUME if case.is_resumed else None,
    )


def _of_library(name: str, kind: str, task: str) -> WorkloadInfo:
    return WorkloadInfo(
        name=name,
        category="library",
        description=f"{kind} of transformers, tiny, with random weights, for {TASKS[task]}",
        expected_verdict=VerifyVerdict.EQUIVALENT,
        schedule=VerifySchedule.ONE_MICROBATCH,
    )


_ENTRIES = [
    *(_of_case(case) for case in cases().values()),
    *(_of_library(name, *model) for name, model in library.models().items()),
]
WORKLOADS: dict[str, WorkloadInfo] = {
    entry.name: entry for entry in sorted(_ENTRIES, key=lambda entry: entry.name)
}

# The bounds keep what one argument makes in memory; what several make together, the job's limit.
_WIDTH, _LAYERS, _BATCH = 1024, 64, 1024
ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    "conv-batchnorm": (
        Argument(name="channels", default=8, most=_WIDTH),
        Argument(name="size", default=8, least=2, most=256),  # one value has no variance
        Argument(name="batch", default=4, most=_BATCH),
    ),
    "entropy-mask": (
        Argument(name="width", default=16, most=_WIDTH),
        Argument(name="batch", default=4, most=_BATCH),
    ),
    "gpt2-tiny": (
        Argument(name="width", default=48, most=_WIDTH),
        Argument(name="layers", default=3, most=_LAYERS),
        Argument(name="heads", default=4, most=64, divides="width"),
        Argument(name="vocabulary", default=128, least=2, most=2**16),
        Argument(name="tokens", default=32, most=1024),
        Argument(name="batch", default=2, most=_BATCH),
        Argument(name="checkpointed", default=1, least=0, most=1),  # 0 is for a plan's regions
    ),
    "mlp": (
        Argument(name="width", default=64, most=_WIDTH),
        Argument(name="layers", default=4, most=_LAYERS),
        Argument(name="batch", default=32, most=_BATCH),
    ),
    **library.arguments(),
}


def check_built_in(name: str, args_json: str) -> None:
    """Raise InvalidRequestError unless the workload is built in and takes the arguments."""
    check_known(name, field="workload.name")
    takes = ARGUMENTS.get(name, ())
    check_arguments(name, takes, args_json, field="workload.args_json")


def check_trains(name: str) -> None:
    """Raise InvalidRequestError for a built-in workload that is no training run to be stopped."""
    known = WORKLOADS.get(name)
    if known is not None and known.resume is None:
        raise InvalidRequestError(
            f"{name} is one step, and no training run that could be stopped; give a workload that "
            "`haversack verify --list` has under resume, or leave it out",
            field="resume",
        )


def check_known(name: str, *, field: str) -> None:
    """Raise InvalidRequestError, with the nearest names, unless the workload is built in."""
    if name in WORKLOADS:
        return
    near = difflib.get_close_matches(name, WORKLOADS, n=3, cutoff=0.4) or sorted(WORKLOADS)[:3]
    raise InvalidRequestError(
        f"{name[:200]!r} is not a built-in workload; near it are {', '.join(near)}, and "
        "`haversack verify --list` has them all",
        field=field,
    )


def with_own_settings(request: VerifyRequest) -> VerifyRequest:
    """Take the schedule, or the stop, that shows what a built-in workload is about.

    What a request says itself stays.
    """
    known = WORKLOADS.get(request.workload.name)
    if known is None:
        return request
    if known.resume is not None:
        resume, world = request.resume or known.resume, request.world or _SAVING
        return replace(request, resume=resume, world=world)
    if request.schedule is not VerifySchedule.UNSPECIFIED:
        return request
    return replace(request, schedule=known.schedule)
