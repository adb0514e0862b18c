"""What Verify costs: processor time of probes and of whole jobs, against one checkpointed step.

Each step is a run of a job's own code in a process of its own, as in a job. Steps that are compared
follow each other, and the median over rounds counts, since the load of the machine changes. A whole
job is what its process and all of its runs take, from the order to the report; torch is loaded
before, as in the zygote.
"""

import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.table import Row, at_most

from haversack.run import WorkloadReference
from haversack.verify import VerifyReport, VerifyRequest
from haversack_server.leftovers import VALUES
from haversack_server.verify import frames, records

ROUNDS = 7
ROUNDS_OF_WHOLE = 5
# The step of the measurements that the gates come from: 4 blocks, width 384, 4 texts of 128 tokens.
ARGUMENTS = {"width": 384, "layers": 4, "heads": 6, "tokens": 128, "batch": 4}
NAMED = WorkloadReference(name="gpt2-tiny", args_json=json.dumps(ARGUMENTS))
REQUEST = VerifyRequest(workload=NAMED)
PLAIN, CHECKPOINTED = "plain step", "checkpointed step"
GATES = {"probe of saved values": 1.25, "probe of state": 1.2}


def costs() -> Iterator[Row]:
    """Measure every probe, and whole jobs that find nothing and that find a difference."""
    from haversack_server.worker.run import make_ready
    from haversack_server.worker.zoo import FACTORIES
    from haversack_server.worker.zygote import warm

    warm()
    ready = make_ready(FACTORIES[NAMED.name](**ARGUMENTS), REQUEST)
    times = _steps(ready)
    base = times[CHECKPOINTED]
    yield Row("costs", CHECKPOINTED, median(base) / 1e6, "ms")
    yield Row("costs", f"{PLAIN}, against it", _ratio(times[PLAIN], base), "x")
    for name, gate in GATES.items():
        yield at_most("costs", f"step with the {name}", _ratio(times[name], base), gate)
    for name in times.keys() - GATES.keys() - {PLAIN, CHECKPOINTED}:
        yield Row("costs", f"step with the {name}", _ratio(times[name], base), "x")
    wholes = {
        "whole job, EQUIVALENT": REQUEST,
        "whole job, DIFFERENT, with its trace": replace(REQUEST, preserve_rng_state=False),
    }
    for what, request in wholes.items():
        yield at_most("costs", what, _whole_against_step(ready, request), 6)


def _ratio(times: list[int], base: list[int]) -> float:
    return median(one / other for one, other in zip(times, base, strict=True))


def _whole_against_step(ready: Any, request: VerifyRequest) -> float:
    """Give the median of whole jobs, each against checkpointed steps right before and after it."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS_OF_WHOLE):
            before = _step_ns(ready, folder, True, frozenset())
            spent = _whole(request)
            after = _step_ns(ready, folder, True, frozenset())
            ratios.append(2 * spent / (before + after))
    return median(ratios)


def _steps(ready: Any) -> Mapping[str, list[int]]:
    """Time every kind of step, in turn, for a number of rounds; nanoseconds."""
    from haversack_server.worker.probes import OF_CHECKPOINTED, Probe

    kinds: dict[str, tuple[bool, frozenset[Probe]]] = {
        PLAIN: (False, frozenset()),
        CHECKPOINTED: (True, frozenset()),
        "probe of saved values": (True, frozenset({Probe.SAVED})),
        "probe of state": (True, frozenset({Probe.STATE})),
        "probe of random sources": (True, frozenset({Probe.RANDOM})),
        "probe of memory": (True, frozenset({Probe.MEMORY})),
        "probe of buffers": (True, frozenset({Probe.BUFFERS})),
        "probes of a job, all of them": (True, OF_CHECKPOINTED),
        "trace": (True, frozenset({Probe.TRACE})),
    }
    times: dict[str, list[int]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            for kind, (checkpointed, probes) in kinds.items():
                times[kind].append(_step_ns(ready, folder, checkpointed, probes))
    return times


def _step_ns(ready: Any, folder: str, checkpointed: bool, probes: frozenset[Any]) -> int:
    from haversack_server.verify.outcome import Outcome
    from haversack_server.worker.fork import run_forked
    from haversack_server.worker.run import RunPlan, perform

    values = str(Path(folder) / VALUES)
    plan = RunPlan(
        stage="step", values_file=values, first=True, checkpointed=checkpointed, probes=probes
    )
    found = run_forked(lambda: records.to_json(perform(plan, REQUEST, ready)))
    assert isinstance(found, dict)
    outcome = records.from_json(Outcome, found)
    assert outcome.raised is None
    return outcome.time_ns


def _whole(request: VerifyRequest) -> int:
    """Run a job in a child, and give the processor time of it and of all its runs; nanoseconds."""
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            _be_job(theirs)
        theirs.close()
        order = {
            "job_id": "whole",
            "request": records.to_json(request),
            "values_file": str(Path(folder) / VALUES),
        }
        frames.send(ours, order)
        report = _report(ours)
        _, status, usage = os.wait4(pid, 0)
    assert status == 0
    assert report.failure is None
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


def _be_job(channel: socket.socket) -> None:
    from haversack_server.worker.job import serve

    try:
        serve(channel, ())
        os._exit(0)
    finally:
        os._exit(1)


def _report(channel: socket.socket) -> VerifyReport:
    with channel:
        while (message := frames.receive(channel)) is not None:
            if "report" in message:
                return records.from_json(VerifyReport, message["report"])
    raise RuntimeError("the job ended without a report")
