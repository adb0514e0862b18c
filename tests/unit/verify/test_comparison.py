"""From rows to the value of a facet: bitwise, noise floor, tolerance; and states by name."""

import pytest
from tests.unit.verify.outcomes import plain, runs

from haversack.verify import Facet, FacetValue
from haversack_server.verify.comparison import Closeness, Row, compare_states, compare_values
from haversack_server.verify.findings import side_effect_finding

GRADIENTS = Facet.PARAMETER_GRADIENTS


def row(name: str, closeness: Closeness, difference: float | None = None) -> Row:
    return Row(facet=GRADIENTS, name=name, closeness=closeness, max_difference=difference)


EQUAL: list[Row] = []
CLOSE = [row("w", Closeness.CLOSE, 1e-7)]
CLOSER = [row("w", Closeness.CLOSE, 6e-8)]
TWICE = [row("w", Closeness.DIFFERENT, 1.2e-7)]
FAR = [row("w", Closeness.DIFFERENT, 0.5)]
OTHER_SHAPE = [row("w", Closeness.DIFFERENT)]


@pytest.mark.parametrize(
    ("again", "checkpointed", "value"),
    [
        (EQUAL, EQUAL, FacetValue.EQUAL_BITWISE),
        (EQUAL, CLOSE, FacetValue.WITHIN_TOLERANCE),
        (EQUAL, FAR, FacetValue.DIFFERENT),
        (EQUAL, OTHER_SHAPE, FacetValue.DIFFERENT),
        (CLOSE, EQUAL, FacetValue.WITHIN_NOISE),
        (CLOSER, CLOSE, FacetValue.WITHIN_NOISE),
        (CLOSER, TWICE, FacetValue.WITHIN_NOISE),
        (CLOSE, FAR, FacetValue.DIFFERENT),
        (CLOSE, OTHER_SHAPE, FacetValue.DIFFERENT),
        (FAR, EQUAL, FacetValue.INCONCLUSIVE),
        (FAR, FAR, FacetValue.INCONCLUSIVE),
        (OTHER_SHAPE, EQUAL, FacetValue.INCONCLUSIVE),
    ],
)
def test_bitwise_then_the_noise_floor_then_the_tolerance(
    again: list[Row], checkpointed: list[Row], value: FacetValue
) -> None:
    assert compare_values(GRADIENTS, 3, again, checkpointed).value is value


def test_the_worst_value_is_the_facets_and_its_names_are_told() -> None:
    checkpointed = [row("a", Closeness.CLOSE, 1e-7), row("b", Closeness.DIFFERENT, 0.5)]
    result = compare_values(GRADIENTS, 3, EQUAL, checkpointed)
    assert result.value is FacetValue.DIFFERENT
    assert result.names == ("b",)
    assert (result.compared_count, result.different_count) == (3, 2)
    assert result.max_difference == 0.5


def test_rows_of_other_facets_do_not_count() -> None:
    assert compare_values(Facet.OUTPUTS, 1, FAR, FAR).value is FacetValue.EQUAL_BITWISE


def test_equal_values_have_a_difference_of_zero_and_another_shape_has_none() -> None:
    assert compare_values(GRADIENTS, 1, EQUAL, EQUAL).max_difference == 0.0
    assert compare_values(GRADIENTS, 1, EQUAL, OTHER_SHAPE).max_difference is None


def test_nothing_to_compare_is_not_called_equal() -> None:
    result = compare_values(Facet.INPUT_GRADIENTS, 0, EQUAL, EQUAL)
    assert result.value is FacetValue.NOT_CHECKED
    assert result.detail == "No input asks for a gradient"


def test_a_list_that_grew_is_named_once() -> None:
    plain = {"log": "list of 1", "log[0]": "0"}
    checkpointed = {"log": "list of 2", "log[0]": "0", "log[1]": "1"}
    changed, unsteady = compare_states(Facet.SIDE_EFFECTS, plain, plain, checkpointed)
    assert changed == ["log"]
    assert unsteady == []


def test_what_two_plain_runs_do_not_share_is_noise() -> None:
    plain, again = {"clock": "1", "n": "1"}, {"clock": "2", "n": "1"}
    changed, unsteady = compare_states(Facet.SIDE_EFFECTS, plain, again, {"clock": "3", "n": "2"})
    assert changed == ["n"]
    assert unsteady == ["clock"]


def test_keys_that_every_run_has_anew_are_noise_and_their_neighbours_are_not() -> None:
    plain = {"runs": "dict of 1", "runs[11]": "a", "folder made: x1": "1 times", "n": "1"}
    again = {"runs": "dict of 1", "runs[12]": "a", "folder made: x2": "1 times", "n": "1"}
    other = {"runs": "dict of 1", "runs[13]": "a", "folder made: x3": "1 times", "n": "2"}
    assert compare_states(Facet.SIDE_EFFECTS, plain, again, other)[0] == ["n"]
    grown = {**other, "runs": "dict of 2", "runs[14]": "a"}
    assert compare_states(Facet.SIDE_EFFECTS, plain, again, grown)[0] == ["n", "runs"]


def test_a_generator_named_as_another_begins_is_named_too() -> None:
    plain = {"torch cpu": "1", "torch cpu.x": "1"}
    other = {"torch cpu": "2", "torch cpu.x": "2"}
    assert compare_states(Facet.RNG, plain, plain, other)[0] == ["torch cpu", "torch cpu.x"]


def effects(*files: str, times: int = 1) -> dict[str, str]:
    opened = {f"file opened for writing: {name}": f"{times} times" for name in files}
    return opened | {f"file {name}": "1 B" for name in files} | {"model.at[7.5 s]": "1"}


@pytest.mark.parametrize(
    ("replayed", "named"),
    [
        (effects("log-3.txt"), ()),
        (effects("log-3.txt", times=2), ("file opened for writing, in all",)),
        (effects("log-3.txt", "b"), ("file opened for writing, in all", "file, in all")),
    ],
)
def test_effects_under_names_that_every_run_has_anew_are_counted_in_all(
    replayed: dict[str, str], named: tuple[str, ...]
) -> None:
    first, again = plain(state=effects("log-1.txt")), plain(state=effects("log-2.txt"))
    found = side_effect_finding(runs(first=first, again=again, state=replayed))
    assert found.names == named
    if named:
        assert found.value is FacetValue.DIFFERENT
        assert "in all: 1 after the plain step, 2 after" in found.detail


def test_a_name_that_passes_on_one_rank_hides_nothing_else_of_that_rank() -> None:
    first = plain(state={"rank 0 file log-1": "1 B"})
    again = plain(state={"rank 0 file log-2": "1 B"})
    last = {"rank 0 file log-3": "1 B", "rank 0 model.log": "1"}
    found = side_effect_finding(runs(first=first, again=again, state=last))
    assert found.names == ("rank 0 model.log",)
