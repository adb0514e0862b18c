"""Cases that a constant was fitted to, asked with the constant fitted anew without them.

Four constants of kernel profiles are fitted to published rows; this file has the rule of each, the
cases behind it, and whether the rule gives what ships. A case is left out of every constant at
once, with all of its rows; a constant without a row is absent: its profile takes it from the one
it is based on. Knows no other constant: those that were derived with rows at hand are not left out.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import Any
from unittest import mock

from tests.bench import estimate_megatron, estimate_published
from tests.bench.estimate_megatron import MIB, dense_figures, is_claimed
from tests.bench.estimate_published import reserved_row, torchtitan_runs
from tests.bench.estimate_rows import Answered, answer, by_case, megatron, steady
from tests.bench.table import Row

from haversack_server.memory import kernel_profile
from haversack_server.memory.kernel_profile import Constant
from haversack_server.memory.spread import calibrated

DENSE = "dense, left out"
TITAN = "torchtitan, left out"
Changes = Mapping[tuple[str, str], Any]  # by profile and constant
Fit = Callable[[str], Changes]  # the constants without a case; without "", which is none, all


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A constant that is a number of equal pieces, fitted to the steady bytes of some cases.

    The number is the median of the cases, each the median of its rows, rounded: a piece is there
    or not. ``names`` are the constants that it is written under, ``piece`` its value for one.
    """

    profile: str
    names: tuple[str, ...]
    piece: int
    cases: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """The constant that stands for all of them."""
        return self.profile, self.names[0]

    def of(self, pieces: int) -> Changes:
        """Give the constants for this many pieces."""
        return {(self.profile, name): pieces * self.piece for name in self.names}

    def fitted(self, case: str, given: Changes) -> Changes:
        """Fit to the cases but this one, beside constants that are ``given``."""
        found = [_pieces(self, each, given) for each in self.cases if each != case]
        return self.of(round(median(found)))


PARKED = Counted(
    profile="megatron-te",
    names=("pipeline_parked_tensors",),
    piece=1,
    cases=(
        "megatron/gpt/gpt3_mcore_te_tp1_pp4_sequence_parallel",
        "megatron/gpt/gpt3_mcore_te_tp1_pp4_swiglu",
    ),
)
WORKSPACES = Counted(
    profile="megatron-local",
    names=("workspace_bytes", "workspace_hopper_bytes"),
    piece=32 * MIB,  # what cuBLAS takes
    cases=(
        "megatron/gpt/gpt3_mcore_tp1_pp1_dist_optimizer_overlap_grad_reduce_param_gather",
        "megatron/gpt/gpt3_mcore_tp1_pp4",
        "megatron/gpt/gpt3_mcore_tp4_pp1",
    ),
)
# Workspaces are what is left above the stage tensors, so those come first.
COUNTED = (PARKED, WORKSPACES)

FACTOR = ("compile", "reserved_over_allocated_permille")
LOGITS = ("torchtitan-eager", "logits_returned_in_fp32")
# The row has 32,768 tokens on each rank, and so have the three others of its case.
LOGITS_CASE = "titan/8b-cp"


def claimed() -> Iterator[Row]:
    """The claimed dense cases, as they are and left out."""
    yield from estimate_megatron.claimed()
    for constant in COUNTED:
        yield from _constant(DENSE, constant.key, constant.cases, megatron_without)
    fitted_to = {case for constant in COUNTED for case in constant.cases}
    yield from dense_figures(DENSE, _left_out(_claimed_runs(), fitted_to, megatron_without))


def torchtitan() -> Iterator[Row]:
    """torchtitan's tables, as they are; those of compiled runs left out too, without a gate."""
    yield from estimate_published.torchtitan()
    cases = tuple(by_case(iter(_compiled_runs())))
    yield from _without(TITAN, LOGITS, (LOGITS_CASE,), titan_without)
    yield from _constant(TITAN, FACTOR, cases, titan_without)
    for answered in _left_out(_compiled_runs(), cases, titan_without):
        row = reserved_row(TITAN, answered)
        within = "within" if row.reached else "beyond"
        yield Row(TITAN, f"{row.what}, {within} {row.gate}", row.value, row.unit)


@cache
def megatron_without(case: str) -> Changes:
    """Fit the constants of Megatron's profiles without a case."""
    found: Changes = {}
    for constant in COUNTED:
        found = {**found, **constant.fitted(case, found)}
    return found


@cache
def titan_without(case: str) -> Changes:
    """Fit the constants of torchtitan's profiles without a case."""
    absent = kernel_profile.load("hf-eager").logits_returned_in_fp32
    logits: Changes = {LOGITS: absent if case == LOGITS_CASE else True}
    runs = [run for run in _compiled_runs() if run.case != case]
    grouped = by_case(iter(_asked(runs, logits)))
    of_cases = [median(map(_reserved_share, rows)) for rows in grouped.values()]
    return {**logits, FACTOR: 10 * round(100 * median(of_cases))}


def _pieces(constant: Counted, case: str, given: Changes) -> float:
    """Give how many pieces a case has above everything else, the median of its rows."""
    runs = [run for run in _claimed_runs() if run.case == case]
    without = [steady(run) for run in _asked(runs, {**given, **constant.of(0)})]
    with_one = [steady(run) for run in _asked(runs, {**given, **constant.of(1)})]
    return median(
        (none.measured - none.ours) / (one.ours - none.ours)
        for none, one in zip(without, with_one, strict=True)
    )


def _reserved_share(run: Answered) -> float:
    assert run.estimate is not None
    assert run.estimate.peak is not None
    measured: int = run.row["value_bytes"]
    return measured / run.estimate.peak.allocated.expected_bytes


def _claimed_runs() -> list[Answered]:
    return [each for each in megatron() if is_claimed(each.row)]


def _compiled_runs() -> list[Answered]:
    return [each for each in torchtitan_runs() if each.request.kernel_profile == FACTOR[0]]


def _left_out(runs: Sequence[Answered], cases: Collection[str], fit: Fit) -> list[Answered]:
    """Ask the runs of these cases again with constants that do not know them."""
    return [_asked([run], fit(run.case))[0] if run.case in cases else run for run in runs]


def _asked(runs: Sequence[Answered], changes: Changes) -> list[Answered]:
    with profiles_with(changes):
        return [answer(run.row, run.request) for run in runs]


def _constant(section: str, key: tuple[str, str], cases: Sequence[str], fit: Fit) -> Iterator[Row]:
    """What the rule gives for a constant from all cases, to be what ships; then without each."""
    shipped = _shipped(key)
    value, what = fit("")[key], f"{', '.join(key)} from all {len(cases)} cases"
    yield Row(section, what, value, shipped.unit, f"= {shipped.value:,}", value == shipped.value)
    yield from _without(section, key, cases, fit)


def _without(section: str, key: tuple[str, str], cases: Sequence[str], fit: Fit) -> Iterator[Row]:
    """What a constant is without each case; yes and no are 1 and 0."""
    for case in cases:
        what = f"{', '.join(key)} without {case.removeprefix('megatron/')}"
        yield Row(section, what, fit(case)[key], _shipped(key).unit)


def _shipped(key: tuple[str, str]) -> Constant:
    profile, name = key
    return kernel_profile.load(profile).constant(name)


@contextmanager
def profiles_with(changes: Changes) -> Iterator[None]:
    """Answer with other constants than those that ship; profiles based on theirs follow them."""
    read = kernel_profile._read

    def changed(name: str) -> tuple[str, Mapping[str, Constant]]:
        title, constants = read(name)
        own = {key: value for (profile, key), value in changes.items() if profile == name}
        return title, {
            key: replace(row, value=own.get(key, row.value)) for key, row in constants.items()
        }

    with mock.patch.object(kernel_profile, "_read", changed):
        _forget_profiles()
        try:
            yield
        finally:
            _forget_profiles()


def _forget_profiles() -> None:
    """Clear what is cached by a profile's name; all else is cached by its constants."""
    kernel_profile.load.cache_clear()
    calibrated.cache_clear()
