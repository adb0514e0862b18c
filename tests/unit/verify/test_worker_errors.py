"""What user code raises is told by its kind and its text, in whichever stage of a job it is."""

import pathlib
from typing import Any, NoReturn

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack.parallelism import Sharding  # noqa: E402
from haversack.run import WorkloadReference  # noqa: E402
from haversack.torch import TrainingWorkload  # noqa: E402
from haversack.verify import VerifyRequest, VerifyResume, VerifyWorld  # noqa: E402
from haversack_server.verify.outcome import Raised  # noqa: E402
from haversack_server.verify.resumable import resume_of  # noqa: E402
from haversack_server.worker import planning, spread  # noqa: E402
from haversack_server.worker.planned import unless_raised  # noqa: E402
from haversack_server.worker.resume_rank import SAVED, ResumeRankWork  # noqa: E402


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise ValueError


TOLD = "its text cannot be had: ValueError"


def raise_it(*_: object) -> NoReturn:
    raise SpeechlessError


def test_a_measured_step_may_raise_what_has_no_text() -> None:
    raised = unless_raised("measured as planned", raise_it).raised
    assert raised == Raised(part="a measured step", kind="SpeechlessError", message=TOLD)


def test_a_step_to_be_planned_may_raise_what_has_no_text() -> None:
    failure = planning._answered(raise_it).failure
    assert failure is not None
    assert failure.message == f"the workload's step raised SpeechlessError: {TOLD}"


def test_a_rank_that_resumes_may_raise_what_has_no_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(spread, "join", lambda *_: None)
    work = ResumeRankWork(
        training=training(optimizer=raise_it),
        request=VerifyRequest(workload=WorkloadReference(name="resume-whole")),
        resume=resume_of(VerifyResume(), VerifyWorld(size=1, sharding=Sharding.REPLICATED)),
        folder=tmp_path,
        rank=0,
        patience_s=1.0,
    )
    monkeypatch.setattr(spread, "spread", lambda workload, *_: workload)
    assert work.do(SAVED).raised == Raised(part="optimizer", kind="SpeechlessError", message=TOLD)


def training(**functions: Any) -> TrainingWorkload:
    class Data:
        def __call__(self, rank: int, size: int) -> tuple[Any, ...]:
            return (torch.ones(1, 1),)

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: Any) -> None:
            return None

    return TrainingWorkload(model=torch.nn.Linear(1, 1), data=Data(), **functions)
