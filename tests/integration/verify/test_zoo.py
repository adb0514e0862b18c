"""The built-in workloads as jobs, held against the table of what is expected of them.

Every tenth case and five models of transformers in the default tests, all of them in the slow tier.
"""

import importlib.util
import pathlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from haversack.verify import (
    Facet,
    FacetValue,
    FirstDifference,
    VerifyReport,
    VerifySchedule,
    VerifyVerdict,
)
from haversack_server.verify.cases import Place, cases
from haversack_server.verify.library import in_bfloat16, models

Verify = Callable[..., Awaitable[Any]]
pytestmark = pytest.mark.asyncio(loop_scope="session")
FINE = (FacetValue.EQUAL_BITWISE, FacetValue.AS_EXPECTED, FacetValue.NOT_CHECKED)
MODELS = ("library-bert", "library-gpt2", "library-llama", "library-t5", "library-vit")
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="library models need the extra zoo"
)


def sampled(names: Iterable[str], sample: Iterable[str]) -> list[Any]:
    chosen = set(sample)
    return [n if n in chosen else pytest.param(n, marks=pytest.mark.slow) for n in names]


def as_in_the_table(found: FirstDifference | None) -> Place:
    assert found is not None
    line = pathlib.Path(found.file).read_text().splitlines()[found.line - 1].strip()
    return Place(module=found.module, operation=found.operation, line=line, cause=found.cause)


def unexpected(report: VerifyReport) -> dict[Facet, FacetValue]:
    return {f.facet: f.value for f in report.facets if f.value not in FINE}


@pytest.mark.parametrize("name", sampled(sorted(cases()), sorted(cases())[::10]))
async def test_a_case_has_the_verdict_and_the_facets_of_the_table(
    verify: Verify, name: str
) -> None:
    case, report = cases()[name], await verify(name)
    assert report.verdict is case.verdict
    assert report.schedule is case.schedule
    assert unexpected(report) == case.facets
    if case.state:
        assert set(case.state) <= set(report.facet(Facet.SIDE_EFFECTS).names)
    if case.place:
        assert as_in_the_table(report.first_difference) == case.place


@needs_transformers
@pytest.mark.parametrize("name", sampled(sorted(models()), MODELS))
async def test_a_model_of_the_library_is_equal_bit_for_bit(verify: Verify, name: str) -> None:
    report = await verify(name)
    assert report.failure is None
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert report.facet(Facet.PARAMETER_GRADIENTS).value is FacetValue.EQUAL_BITWISE
    assert report.recompute_counts
    assert unexpected(report) == {}


@needs_transformers
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(in_bfloat16()))
async def test_a_model_of_the_library_is_equal_in_bfloat16_too(verify: Verify, name: str) -> None:
    report = await verify(name, args_json='{"bf16": 1}')
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert unexpected(report) == {}


async def test_a_schedule_that_is_asked_for_is_taken(verify: Verify) -> None:
    one = VerifySchedule.ONE_MICROBATCH
    report = await verify("state-mask-of-the-microbatch", schedule=one, strict=True)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert report.schedule is one


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rng-torch-held-generator", "replay_context(generators="),
        ("state-attribute-changed", "pass it as an argument"),
        ("buffers-moving-average", "update buffers and caches outside"),
        ("cache-growing", "another branch"),
        ("state-loss-history", "a history on once more"),
    ],
)
async def test_a_cure_follows_from_the_class_of_the_cause(
    verify: Verify, name: str, hint: str
) -> None:
    report = await verify(name)
    assert hint in report.facet(Facet.INPUT_GRADIENTS).fix_hint


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("side-effects-print", {"printed text"}),
        ("side-effects-file", {"file calls.txt", "file opened for writing: calls.txt"}),
    ],
)
async def test_what_leaves_the_process_is_named(verify: Verify, name: str, keys: set[str]) -> None:
    found = (await verify(name)).facet(Facet.SIDE_EFFECTS)
    assert set(found.names) == keys


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("hooks-retained-graph", [(1, 3, 3)]),
        ("hooks-double-backward", [(1, 3, 3)]),
        ("hooks-nested", [(1, 2, 2), (1, 3, 3)]),
        ("hooks-nested-whole", [(1, 2, 2), (1, 2, 2)]),
        ("hooks-accumulated", [(2, 4, 4)]),
        ("hooks-kept-on-the-context", [(1, 1, 2)]),
    ],
)
async def test_entries_are_one_for_each_forward_and_for_each_backward_around_it(
    verify: Verify, name: str, counts: list[tuple[int, int, int]]
) -> None:
    found = (await verify(name)).recompute_counts
    assert [(c.plain_entries, c.entries, c.expected_entries) for c in found] == counts
