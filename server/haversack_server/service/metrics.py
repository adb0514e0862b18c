"""What the server counts and times, under the names that gRPC dashboards know.

Each server has a registry of its own. Children are made once for each method: looking one up by
its labels costs more than counting. Times are in seconds, as Prometheus wants them.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import grpc.aio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

import haversack
from haversack.verify import FailureReason, JobState, VerifyReport, VerifyVerdict
from haversack_kernels import cache
from haversack_server.cuda.outcomes import OUTCOMES
from haversack_server.service.around import METHODS, SERVICE, Around, Call

BUCKETS_S = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
WAIT_BUCKETS_S = (0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1800.0)
_METHOD = ("grpc_type", "grpc_service", "grpc_method")


class Metrics:
    """Every metric of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        _describe_process(registry)
        self._add_calls(registry)
        self._add_solves(registry)
        self._add_jobs(registry)

    def _add_calls(self, registry: CollectorRegistry) -> None:
        """What every call counts, and what admission does with it."""
        self.started = Counter(
            "grpc_server_started_total", "Calls that began.", _METHOD, registry=registry
        )
        self.handled = Counter(
            "grpc_server_handled_total",
            "Calls that ended, by their status.",
            (*_METHOD, "grpc_code"),
            registry=registry,
        )
        self.handling = Histogram(
            "grpc_server_handling_seconds",
            "Time from the start of a call to its end.",
            _METHOD,
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.in_flight = Gauge(
            "haversack_in_flight", "Calls that admission counts now.", registry=registry
        )
        rejected = Counter(
            "haversack_admission_rejected_total",
            "Calls that admission refused, by its reason.",
            ("reason",),
            registry=registry,
        )
        self.rejected_in_flight = rejected.labels("in_flight")

    def _add_solves(self, registry: CollectorRegistry) -> None:
        """How long plans take, and which of them the CUDA device solved."""
        self.solve = Histogram(
            "haversack_solve_seconds",
            "Time of a plan in its room (tables, floor, solve, frontier), by its solver.",
            ("solver",),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.cuda_solves = Counter(
            "haversack_cuda_solves_total",
            "Solves that were given to the CUDA device, by how they ended there.",
            ("outcome",),
            registry=registry,
        )
        for outcome in OUTCOMES:
            self.cuda_solves.labels(outcome)
        self.cuda_ready = Gauge(
            "haversack_cuda_ready",
            "1 while solves may be given to the CUDA device, else 0.",
            registry=registry,
        )

    def _add_jobs(self, registry: CollectorRegistry) -> None:
        """Verify jobs, those that run and those that have their report."""
        self.jobs = Gauge(
            "haversack_verify_jobs",
            "Verify jobs now, by their state.",
            ("state",),
            registry=registry,
        )
        self.jobs_finished = Counter(
            "haversack_verify_jobs_finished_total",
            "Verify jobs that have their report, by its verdict, or CANCELLED.",
            ("verdict",),
            registry=registry,
        )
        self.waits = Histogram(
            "haversack_verify_wait_seconds",
            "Time that Verify jobs waited for their device, by the device.",
            ("device",),
            buckets=WAIT_BUCKETS_S,
            registry=registry,
        )
        self.store_faults = Counter(
            "haversack_verify_store_faults_total",
            "Writes of jobs and reports to the state folder that failed.",
            registry=registry,
        )
        self._cancelled = self.jobs_finished.labels("CANCELLED")
        self._reports = {
            verdict: self.jobs_finished.labels(verdict.name) for verdict in VerifyVerdict if verdict
        }

    def count_cuda(self, outcome: str) -> None:
        """Count a solve that was given to the CUDA device."""
        self.cuda_solves.labels(outcome).inc()

    def count_report(self, report: VerifyReport) -> None:
        """Count a job that has its report; one that was called off is no failure."""
        cancelled = report.failure is not None and report.failure.reason is FailureReason.CANCELLED
        (self._cancelled if cancelled else self._reports[report.verdict]).inc()

    def count_wait(self, device: str, waited_ns: int) -> None:
        """Count a job that got its device."""
        self.waits.labels(device).observe(waited_ns / 1e9)

    def watch(self, counts: Callable[[], Mapping[JobState, int]]) -> None:
        """Look at the jobs whenever somebody reads the metrics."""
        for state in JobState:
            if state:
                self.jobs.labels(state.name).set_function(partial(_count, counts, state))


def _describe_process(registry: CollectorRegistry) -> None:
    """Say which build runs, and what compiling its kernels has cost."""
    build = Gauge(
        "haversack_build_info",
        "Always 1; its labels tell the build.",
        ("version",),
        registry=registry,
    )
    build.labels(haversack.__version__).set(1)
    compiling = Gauge(
        "haversack_compile_seconds",
        "Time that this process has spent compiling kernels; 0 when all came from disk.",
        registry=registry,
    )
    compiling.set_function(cache.compile_seconds)


def _count(counts: Callable[[], Mapping[JobState, int]], state: JobState) -> int:
    return counts().get(state, 0)


class Series:
    """The children of one method."""

    def __init__(self, metrics: Metrics, method: str) -> None:
        kind = "server_stream" if METHODS[method].server_streaming else "unary"
        labels = (kind, SERVICE.full_name, METHODS[method].name)
        self.started = metrics.started.labels(*labels)
        self.handling = metrics.handling.labels(*labels)
        self._handled = metrics.handled
        self._labels = labels
        self._by_code = {"OK": metrics.handled.labels(*labels, "OK")}

    def handled(self, code: str) -> Counter:
        """The counter of calls that ended with a status."""
        if code not in self._by_code:
            self._by_code[code] = self._handled.labels(*self._labels, code)
        return self._by_code[code]


class Measure(Around):
    """Counts and times every call; as the outermost interceptor it knows when none is left."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._series = {method: Series(metrics, method) for method in METHODS}
        self._running = 0
        self.idle = asyncio.Event()
        self.idle.set()

    async def around(self, call: Call) -> Any:
        """Run a call between two looks at the clock."""
        series = self._series[call.method]
        series.started.inc()
        self._count(1)
        started_at = time.perf_counter()
        code = "UNKNOWN"
        try:
            answer = await call.answer()
            code = "OK"
            return answer
        except asyncio.CancelledError:
            has_time_left = call.context.time_remaining() != 0.0  # None without a deadline
            code = "CANCELLED" if has_time_left else "DEADLINE_EXCEEDED"
            raise
        except grpc.aio.AbortError:
            code = _CODES[call.context.code()]
            raise
        finally:
            series.handling.observe(time.perf_counter() - started_at)
            series.handled(code).inc()
            self._count(-1)

    def _count(self, change: int) -> None:
        self._running += change
        if self._running:
            self.idle.clear()
        else:
            self.idle.set()


# Versions of gRPC give the code that a call was aborted with as one or the other.
_CODES = {key: each.name for each in grpc.StatusCode for key in (each, each.value[0])}
