"""A step that asks what no seed repeats: how often plain runs again."""

from dataclasses import replace

import pytest

from haversack.verify import Facet
from haversack_server.verify.chance import MORE_RUNS, MOST_NS, settled
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.findings import Outcomes
from haversack_server.verify.outcome import Outcome

PLAIN = Outcome(stage="plain")
ROW = Row(facet=Facet.OUTPUTS, name="output", closeness=Closeness.DIFFERENT)
OTHER = replace(PLAIN, rows=(ROW,))
ASKING = Outcome(stage="checkpointed under probes", asked=("os.urandom",))
RUNS = Outcomes(plain=PLAIN, again=PLAIN, checkpointed=PLAIN, watched=ASKING)


def counted(runs: Outcomes, *, differs_at: int = 0) -> tuple[int, Outcomes]:
    made: list[Outcome] = []

    def run() -> Outcome:
        at = OTHER if len(made) + 1 == differs_at else PLAIN
        made.append(at)
        return made[-1]

    after = settled(runs, run)
    return len(made), after


def test_plain_runs_again_until_a_run_differs() -> None:
    count, runs = counted(RUNS, differs_at=3)
    assert (count, runs.again.rows) == (3, (ROW,))
    count, runs = counted(RUNS)
    assert (count, runs.again) == (MORE_RUNS, PLAIN)


@pytest.mark.parametrize(("took_ns", "runs"), [(MOST_NS * 2, 1), (MOST_NS * 2 // 5, 2)])
def test_runs_that_do_not_fit_in_the_time_are_not_begun(
    monkeypatch: pytest.MonkeyPatch, took_ns: int, runs: int
) -> None:
    now_ns = 0
    monkeypatch.setattr("haversack_server.verify.chance.time.monotonic_ns", lambda: now_ns)

    def run() -> Outcome:
        nonlocal now_ns
        now_ns += took_ns
        return PLAIN

    settled(RUNS, run)
    assert now_ns == runs * took_ns


def test_noise_of_kernels_does_not_keep_a_chance_from_being_asked_again() -> None:
    noisy = replace(PLAIN, rows=(replace(ROW, closeness=Closeness.CLOSE),))
    count, runs = counted(replace(RUNS, again=noisy), differs_at=2)
    assert (count, runs.again.rows) == (2, (ROW,))


@pytest.mark.parametrize(
    "runs",
    [
        replace(RUNS, watched=replace(ASKING, asked=())),
        replace(RUNS, watched=None),
        replace(RUNS, again=OTHER),
        replace(RUNS, again=replace(PLAIN, rng={"torch cpu": "moved"})),
    ],
)
def test_nothing_runs_again_where_nothing_is_to_be_told(runs: Outcomes) -> None:
    assert counted(runs) == (0, runs)


def test_a_time_among_the_state_is_no_value() -> None:
    runs = replace(RUNS, again=replace(PLAIN, state={"model.stamp": "2.0"}))
    assert counted(runs, differs_at=2)[0] == 2
