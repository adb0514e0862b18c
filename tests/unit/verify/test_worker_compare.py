"""Comparing tensors: bits first, the tolerance of the dtype next, and None is not zero."""

import copy
import enum
import logging
import math
from collections import deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack.verify import Facet  # noqa: E402
from haversack_server.verify.comparison import Closeness, Row  # noqa: E402
from haversack_server.worker import values as values_module  # noqa: E402
from haversack_server.worker.compare import rows  # noqa: E402
from haversack_server.worker.values import flatten  # noqa: E402

ONE = torch.tensor([1.0, -2.0])
MANY = torch.tensor([1e-4, 0.5])


def compare(plain: Any, other: Any) -> Row | None:
    found = list(rows(Facet.OUTPUTS, {"y": plain}, {"y": other}))
    return found[0] if found else None


@pytest.mark.parametrize(
    "value",
    [
        ONE,
        ONE.double(),
        ONE.bfloat16(),
        ONE.to(torch.complex64).conj(),
        torch.tensor([math.nan, math.inf]),
        torch.tensor(3),
        torch.tensor([True]),
        torch.empty(0),
        ONE.expand(3, 2).t(),
        torch.eye(2).to_sparse(),
        None,
        "3.0",
    ],
)
def test_equal_values_give_no_row(value: Any) -> None:
    other = value.clone() if isinstance(value, torch.Tensor) else value
    assert compare(value, other) is None


@pytest.mark.parametrize(
    ("plain", "other", "closeness"),
    [
        (ONE, ONE + 1e-6, Closeness.CLOSE),
        (ONE * 1e-6, ONE * 1.000001e-6, Closeness.CLOSE),
        (ONE * 1e-6, ONE * 1.1e-6, Closeness.DIFFERENT),
        (ONE * 0, ONE * 1e-9, Closeness.DIFFERENT),
        (ONE, ONE + 1e-3, Closeness.DIFFERENT),
        (ONE.bfloat16(), (ONE + 0.01).bfloat16(), Closeness.CLOSE),
        (ONE.bfloat16(), torch.tensor([1.0, -2.1]).bfloat16(), Closeness.DIFFERENT),
        (MANY.bfloat16(), (MANY + 1e-3).bfloat16(), Closeness.DIFFERENT),
        (MANY * 1e3, MANY * 1e3 + 1e-4, Closeness.DIFFERENT),
        (ONE.double(), ONE.double() + 1e-6, Closeness.DIFFERENT),
        (torch.tensor([0.0]), torch.tensor([-0.0]), Closeness.CLOSE),
        (torch.tensor([math.nan]), torch.tensor([0.0]), Closeness.DIFFERENT),
        (torch.tensor([math.inf]), torch.tensor([3e38]), Closeness.DIFFERENT),
        (torch.tensor([math.inf, 1.0]), torch.tensor([math.inf, 1.0000001]), Closeness.CLOSE),
        (torch.tensor([math.nan, 1.0]), torch.tensor([math.nan, 1.0000001]), Closeness.CLOSE),
        (torch.tensor([1]), torch.tensor([2]), Closeness.DIFFERENT),
        (ONE + 1j, ONE * 1.000001 + 1j, Closeness.CLOSE),
        (ONE + 1j, ONE + 1.1j, Closeness.DIFFERENT),
        (ONE.double() + 1j * math.nan, ONE.double() + 1j, Closeness.DIFFERENT),
    ],
)
def test_other_bits_are_measured_against_the_tolerance(
    plain: Any, other: Any, closeness: Closeness
) -> None:
    row = compare(plain, other)
    assert row is not None
    assert row.closeness is closeness
    assert row.max_difference is not None
    assert "tolerance" in row.note or "must be equal" in row.note


@pytest.mark.parametrize(("start", "end"), [(0, 8), (1, 9), (2, 10), (1, 4), (3, 5)])
def test_a_part_of_any_place_and_size_is_compared_to_its_last_bit(start: int, end: int) -> None:
    plain = torch.arange(12, dtype=torch.int32)[start:end]
    assert compare(plain, plain.clone()) is None
    for place in range(end - start):
        other = plain.clone()
        other[place] += 1
        assert compare(plain, other) is not None


def test_a_number_against_nan_is_infinitely_far() -> None:
    row = compare(torch.tensor([math.nan, 1.0]), torch.tensor([0.0, 1.0]))
    assert row is not None
    assert row.max_difference == math.inf


@pytest.mark.parametrize(
    ("plain", "other", "note"),
    [
        (None, torch.zeros(2), "None in the plain run, a tensor of shape (2,) in this one"),
        (torch.zeros(2), torch.zeros(3), "shape (2,) in the plain run, (3,) in this one"),
        (torch.zeros(2), torch.zeros(2).double(), "torch.float64 in this one"),
        ("1", "2", "1 in the plain run, 2 in this one"),
    ],
)
def test_none_is_not_zero_and_shapes_have_no_difference(plain: Any, other: Any, note: str) -> None:
    row = compare(plain, other)
    assert row is not None
    assert row.closeness is Closeness.DIFFERENT
    assert row.max_difference is None
    assert note in row.note


def test_a_value_that_only_one_run_has_is_different() -> None:
    found = list(rows(Facet.OUTPUTS, {"y": ONE}, {"z": ONE}))
    assert [row.name for row in found] == ["y", "z"]
    assert "nothing in this one" in found[0].note


@dataclass
class Output:
    loss: Any
    extra: Any = None


@dataclass(slots=True)
class Slotted:
    hidden: Any


class Kind(enum.Enum):
    DENSE = 1
    SPARSE = 2


def test_outputs_of_many_forms_are_flattened_by_name() -> None:
    point = namedtuple("point", "x y")
    value = {"a": [ONE, (2, None)], "b": Output(ONE), "c": point(1, "s"), "d": object(), "e": []}
    value |= {"f": Slotted(ONE), "g": deque([ONE])}
    assert list(flatten(value, "output")) == [
        "output.a[0]",
        "output.a[1][0]",
        "output.a[1][1]",
        "output.b.loss",
        "output.b.extra",
        "output.c[0]",
        "output.c[1]",
        "output.d",
        "output.e",
        "output.f.hidden",
        "output.g[0]",
    ]


@pytest.mark.filterwarnings("ignore:.*nested tensors", "ignore:.*quantiz")
@pytest.mark.parametrize(
    "made",
    [
        lambda values: torch.quantize_per_tensor(values, 0.1, 0, torch.quint8),
        lambda values: torch.nested.nested_tensor([values, ONE], layout=torch.jagged),
        lambda values: torch.nested.nested_tensor([values, ONE]),
    ],
    ids=["quantised", "jagged", "nested"],
)
def test_tensors_of_every_layout_are_compared(made: Callable[[Any], Any]) -> None:
    given = torch.tensor([1.0, 2.0, 3.0])
    assert compare(made(given), made(given.clone())) is None
    row = compare(made(given), made(given.flip(0)))
    assert row is not None
    assert row.closeness is Closeness.DIFFERENT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (numpy.array([1.0, 2.0]), numpy.array([1.0, 3.0])),
        (numpy.float32(1), numpy.float32(2)),
        ({1, 2}, {1, 3}),
        (bytearray(b"ab"), bytearray(b"ac")),
        (Decimal("1.0"), Decimal("1.1")),
        (Kind.DENSE, Kind.SPARSE),
    ],
)
def test_values_of_libraries_are_compared_by_what_they_are(one: Any, other: Any) -> None:
    told, others = (flatten({"a": each}, "output") for each in (one, other))
    assert list(told) == list(others) == ["output.a"]
    assert told != others
    assert told == flatten({"a": copy.deepcopy(one)}, "output")


def test_what_leads_to_all_of_a_program_is_not_looked_into() -> None:
    value = (Kind, Output, torch, logging.getLogger("any"))
    told = [each for each in flatten(value, "output").values() if isinstance(each, str)]
    assert told[:2] == ["EnumType", "type"]
    assert len(told) == len(value)


def test_a_value_that_holds_itself_ends() -> None:
    loop: list[Any] = [ONE]
    loop += [loop, [loop]]
    assert list(flatten(loop, "output")) == ["output[0]", "output[1]", "output[2][0]"]


def test_a_tensor_is_found_as_deep_as_it_lies() -> None:
    value: Any = ONE
    for _ in range(50):
        value = [Output(value)]
    assert list(flatten(value, "output")) == [
        "output" + "[0].loss" * 50,
        *("output" + "[0].loss" * deep + "[0].extra" for deep in reversed(range(50))),
    ]


@pytest.mark.parametrize("place", [0, 5_000, -1])
def test_one_value_of_many_that_is_off_is_enough(place: int) -> None:
    plain = torch.linspace(0.5, 1.0, 2**16)
    near, far = plain * (1 + 2**-22), plain.clone()
    far[place] *= 2
    assert compare(plain, near).closeness is Closeness.CLOSE  # type: ignore[union-attr]
    assert compare(plain, far).closeness is Closeness.DIFFERENT  # type: ignore[union-attr]


class Named(dict[str, Any]):
    """A mapping with an attribute, as the outputs of libraries are."""


def test_no_part_of_an_output_passes_unseen() -> None:
    named, listed = Named(a=ONE), Listed([ONE])
    named.extra = listed.extra = MANY  # type: ignore[attr-defined]
    named.same = named["a"]  # type: ignore[attr-defined]
    objects = numpy.array([None, MANY], dtype=object)
    value = [{1: ONE, "1": MANY}, {MANY, ONE}, named, listed, {"b": ONE}.values(), objects]
    found = flatten(value, "y")
    tensors = [name for name, each in found.items() if isinstance(each, torch.Tensor)]
    assert tensors == [
        *("y[0].1", "y[0].1'"),
        *("y[1][0]", "y[1][1]"),
        *("y[2].a", "y[2].extra"),
        *("y[3][0]", "y[3].extra"),
        "y[4][0]",
        "y[5][]'",
    ]


class Listed(list[Any]):
    """A list with an attribute."""


def test_keys_that_every_run_makes_anew_have_one_name() -> None:
    assert list(flatten({object(): ONE}, "y")) == ["y.object"]


def test_rows_of_numbers_beyond_the_last_part_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(values_module, "_MOST_PARTS", 4)
    rows_of = [flatten([[1.0, 2.0], [3.0, 4.0], [5.0, last]], "y") for last in (6.0, 7.0)]
    assert len(rows_of[0]) == 5
    assert rows_of[0] != rows_of[1]


def test_what_has_parts_without_end_comes_to_one() -> None:
    value: Any = ONE
    for _ in range(60):
        value = [value, value]  # 2**60 paths lead to the one tensor
    assert 100_000 <= len(flatten(value, "output")) < 101_000
