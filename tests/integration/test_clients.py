"""Every call of the service, through the blocking client and the awaiting one."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.servers import served

from haversack import (
    AsyncClient,
    BlockAction,
    Budget,
    Candidates,
    Client,
    EstimateRequest,
    EstimateVerdict,
    InvalidRequestError,
    JobState,
    NotFoundError,
    PlanRequest,
    PlanStatus,
    VerifyEvent,
    VerifyRequest,
    VerifyVerdict,
    WorkloadReference,
)
from haversack_server.service.app import Running

MODEL = Path(__file__).parents[2] / "examples/llama3_8b.json"
CANDIDATES: dict[str, Any] = {"size_bytes": [3, 2, 2], "gain": [5, 3, 3], "budget_bytes": 4}
LONGEST_START_S = 120.0  # of the worker, on a busy machine


class Awaited:
    """The awaiting client behind the blocking one's methods, each awaited to its end."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._runner.run(method(*args, **kwargs))

    def verify_events(self, *args: Any, **kwargs: Any) -> list[VerifyEvent]:
        async def collected() -> list[VerifyEvent]:
            return [event async for event in self._client.verify_events(*args, **kwargs)]

        return self._runner.run(collected())


@contextmanager
def awaited(address: str) -> Iterator[Awaited]:
    with asyncio.Runner() as runner:
        client = AsyncClient(address)
        yield Awaited(client, runner)
        runner.run(client.close())


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served() as running:
        yield running


@pytest.fixture(scope="module", params=[Client, awaited], ids=["blocking", "awaiting"])
def client(request: pytest.FixtureRequest, running: Running) -> Iterator[Any]:
    make: Callable[[str], AbstractContextManager[Any]] = request.param
    with make(running.target) as client:
        yield client


def test_an_estimate_by_keywords(client: Any) -> None:
    answer = client.estimate(
        model=MODEL, gpus=8, gpu_memory="80GiB", zero=3, seq=8192, microbatch=1
    )
    assert answer.verdict is not EstimateVerdict.UNSPECIFIED
    assert answer.peak.allocated.expected_bytes > answer.steady_bytes > 0


def test_an_estimate_by_request(client: Any) -> None:
    answer = client.estimate(EstimateRequest(parameter_count=1000))
    assert answer.steady_bytes >= 16_000


def test_equal_requests_have_equal_digests_and_others_have_not(client: Any) -> None:
    digests = [
        client.estimate(EstimateRequest(parameter_count=count)).request_digest
        for count in (1, 1, 2)
    ]
    assert digests[0] == digests[1] != digests[2]
    assert all(len(digest) == 64 for digest in digests)


def test_variations_and_actions_are_keywords_too(client: Any) -> None:
    run = {"model": MODEL, "gpus": 8, "gpu_memory": "80GiB", "zero": 3, "seq": 512}
    action = BlockAction(block="model.layers.0", option="recompute")
    base = client.estimate(**run, microbatch=1)
    varied = client.estimate(
        **run, microbatch=1, what_ifs=[{"name": "double", "microbatch": 2}], actions=[action]
    )
    assert [each.name for each in varied.what_ifs] == ["double"]
    expected = varied.peak.allocated.expected_bytes
    assert expected < base.peak.allocated.expected_bytes


@pytest.mark.parametrize("columns", [list, tuple, np.array])
def test_a_plan_of_candidates(client: Any, columns: Callable[[Any], Any]) -> None:
    plan = client.plan_candidates(
        size_bytes=columns([3, 2, 2]), gain=columns([5, 3, 3]), budget_bytes=4
    )
    assert plan.status is PlanStatus.OPTIMAL
    assert (plan.total_gain, plan.saved, plan.total_size_bytes) == (6, (1, 2), 4)


def test_a_plan_by_request_has_a_digest(client: Any) -> None:
    request = PlanRequest(
        candidates=Candidates(size_bytes=(3, 2, 2), gain=(5, 3, 3)), budget=Budget(bytes=4)
    )
    plan = client.plan(request)
    assert plan == client.plan_candidates(**CANDIDATES)
    columns = {"size_bytes": (3, 2, 2), "gain": (5, 3, 3)}
    assert plan == client.plan(candidates=columns, budget=4)
    with pytest.raises(InvalidRequestError, match="a request or keywords"):
        client.plan(request, budget=4)
    assert len(plan.request_digest) == 64


def test_a_plan_of_a_model(client: Any) -> None:
    plan = client.plan_model(
        model=MODEL, gpus=8, gpu_memory="80GiB", zero=3, seq=8192, microbatch=2
    )
    assert plan.status is PlanStatus.OPTIMAL
    assert any(action.option == "recompute" for action in plan.actions)


def test_the_workloads_are_listed(client: Any) -> None:
    assert "gpt2-tiny" in {each.name for each in client.list_workloads().workloads}


def test_the_gpus_of_jobs_are_listed(client: Any) -> None:
    listed = client.list_verify_devices()
    assert listed.executor == "local"
    assert [gpu.device for gpu in listed.devices] == [
        f"cuda:{index}" for index in range(len(listed.devices))
    ]


def test_a_job_is_followed_to_its_report(client: Any) -> None:
    events: list[VerifyEvent] = []
    report = client.verify(workload="mlp", on_event=events.append, timeout=LONGEST_START_S)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert events[0].queued is not None
    assert events[-1].report == report
    assert {each.job_id for each in events} == {report.job_id}


def test_the_same_id_gives_the_stored_report(client: Any) -> None:
    reference = WorkloadReference(name="mlp")
    request = VerifyRequest(workload=reference, job_id=f"twice-{type(client).__name__}")
    first = client.verify(request, timeout=LONGEST_START_S)
    *_, last = client.verify_events(request)
    assert last.report == first
    assert client.cancel_verify(request.job_id) is JobState.FINISHED


def test_a_job_that_is_not_there_is_not_found(client: Any) -> None:
    with pytest.raises(NotFoundError, match="no job 'nobody'"):
        client.cancel_verify("nobody")


def test_a_workload_that_is_not_there_is_named_with_those_near_it(client: Any) -> None:
    with pytest.raises(InvalidRequestError, match="gpt2-tiny") as caught:
        client.verify(workload="gpt2-tny")
    assert caught.value.field == "workload.name"


def test_an_entry_point_outside_the_prefixes_is_refused(client: Any) -> None:
    with pytest.raises(InvalidRequestError, match="not allowed") as caught:
        client.verify(workload="os:getcwd")
    assert caught.value.field == "workload.entry_point"


def test_what_the_server_finds_has_its_field(client: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        client.plan_model(parameter_count=5)
    assert caught.value.field == "parameter_count"


def test_what_the_client_finds_costs_no_call(client: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        client.plan_candidates(size_bytes=[3, 0, -1], gain=[1, 1, True], budget_bytes=4)
    assert [each.field for each in caught.value.violations] == [
        "candidates.size_bytes[1]",
        "candidates.size_bytes[2]",
        "candidates.gain[2]",
    ]


def test_a_request_and_keywords_are_not_both_taken(client: Any) -> None:
    with pytest.raises(InvalidRequestError, match="keywords such as gpus, not both"):
        client.estimate(EstimateRequest(parameter_count=1), gpus=4)
    request = VerifyRequest(workload=WorkloadReference(name="mlp"))
    with pytest.raises(InvalidRequestError, match="not both"):
        client.verify(request, workload="mlp")


def test_a_request_of_another_call_is_a_fault_of_the_program(client: Any) -> None:
    with pytest.raises(TypeError, match=r"Plan takes a haversack\.PlanRequest"):
        client.plan(EstimateRequest(parameter_count=1))
    with pytest.raises(TypeError, match=r"Estimate takes a haversack\.EstimateRequest, not a str"):
        client.estimate("config.json")


def test_an_unknown_keyword_is_refused_as_python_does(client: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'gpu'"):
        client.estimate(parameter_count=1, gpu=8)
