"""What rounding leaves in gradients is told from gradients that are lost, flipped or scaled."""

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack.verify import Facet  # noqa: E402
from haversack_server.verify.comparison import Closeness, Row  # noqa: E402
from haversack_server.worker import compare, rounding  # noqa: E402

COUNT = 64
WEIGHT = 100.0  # the largest gradient of the module


def drawn(seed: int, count: int = COUNT) -> Any:
    """Values between -1 and 1, the first of which is 1."""
    values = torch.rand(count, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    values[0] = 1.0
    return values


def row(plain: Any, other: Any, facet: Facet = Facet.PARAMETER_GRADIENTS) -> Row:
    """Compare a gradient that lies beside one of ``WEIGHT`` in its module."""
    beside = {"k.weight": torch.full((4,), WEIGHT, dtype=plain.dtype)}
    (only,) = compare.rows(facet, beside | {"k.bias": plain}, beside | {"k.bias": other})
    return only


@pytest.mark.parametrize(
    ("dtype", "last_bits"),
    [(torch.float32, 2.0), (torch.bfloat16, 0.5), (torch.float16, 0.3), (torch.float64, 4.0)],
)
def test_two_gradients_that_are_rounding_are_close_beside_their_module(
    dtype: Any, last_bits: float
) -> None:
    size = last_bits * torch.finfo(dtype).eps * WEIGHT
    one, two = ((drawn(seed) * size).to(dtype) for seed in (1, 2))
    found = row(one, two)
    assert found.closeness is Closeness.CLOSE
    assert found.is_rounding
    assert "both are 0 within" in found.note
    for large in (one * 8, two * 8):  # only one of them is rounding
        assert row(large, two).closeness is Closeness.DIFFERENT
        assert row(one, large).closeness is Closeness.DIFFERENT
    assert row(one, two, facet=Facet.OUTPUTS).closeness is Closeness.DIFFERENT
    assert row(one, two, facet=Facet.INPUT_GRADIENTS).closeness is Closeness.DIFFERENT


LOST: list[Callable[[Any], Any]] = [
    torch.zeros_like,
    torch.neg,
    lambda plain: plain * 2,
    lambda plain: plain / 4,
    lambda plain: torch.where(torch.arange(COUNT) < COUNT // 2, plain, 0.0),
    lambda plain: torch.full_like(plain, math.nan),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("changed", LOST)
def test_no_gradient_is_lost_flipped_or_scaled_by_rounding_however_small_it_is(
    dtype: Any, changed: Callable[[Any], Any]
) -> None:
    plain = (drawn(1) * 0.3 * torch.finfo(dtype).eps * WEIGHT).to(dtype)
    other = changed(plain).to(dtype)
    assert row(plain, other).closeness is Closeness.DIFFERENT
    assert row(other, plain).closeness is Closeness.DIFFERENT


def test_a_lost_gradient_of_a_percent_of_its_module_is_no_rounding() -> None:
    lora = (drawn(1) * 0.0128 * WEIGHT).bfloat16()
    assert row(lora, torch.zeros_like(lora)).closeness is Closeness.DIFFERENT
    assert row(lora, -lora).closeness is Closeness.DIFFERENT
    one = torch.tensor([5e-4 * WEIGHT]).half()
    assert row(one, -one).closeness is Closeness.DIFFERENT


@pytest.mark.parametrize(
    ("name", "beside"),
    [("model.w[1]", "model.v"), ("params.1", "params.0"), ("loss.keywords['w']", "loss.v")],
)
def test_only_weights_of_a_module_are_measured_by_it(name: str, beside: str) -> None:
    large = {beside: torch.full((4,), WEIGHT)}
    one, two = large | {name: drawn(1) * 1e-6}, large | {name: drawn(2) * 1e-6}
    (found,) = compare.rows(Facet.PARAMETER_GRADIENTS, one, two)
    assert found.closeness is Closeness.DIFFERENT


def test_a_module_without_a_largest_gradient_gives_no_measure() -> None:
    one, two = drawn(1) * 1e-6, drawn(2) * 1e-6
    beside = {"k.weight": torch.tensor([math.inf]), "k.none": None}
    given = (beside | {"k.bias": one}, beside | {"k.bias": two})
    (found,) = compare.rows(Facet.PARAMETER_GRADIENTS, *given)
    assert found.closeness is Closeness.DIFFERENT


def packed(small: Any) -> Any:
    """A weight whose first half has gradients of about 57, and the other what is given."""
    return torch.cat([drawn(3, 512) * 57, small])


@pytest.mark.parametrize("facet", [Facet.PARAMETER_GRADIENTS, Facet.INPUT_GRADIENTS])
def test_last_bits_of_the_largest_value_are_rounding_in_small_ones(facet: Facet) -> None:
    one, two = (packed(drawn(seed, 512) * 0.3).bfloat16() for seed in (1, 2))
    found = row(one, two, facet=facet)
    assert found.closeness is Closeness.CLOSE
    assert found.is_rounding
    assert "last bits of the largest value" in found.note
    assert row(one, two, facet=Facet.OUTPUTS).closeness is Closeness.DIFFERENT
    far = packed(drawn(2, 512) * 1.5).bfloat16()
    assert row(one, far, facet=facet).closeness is Closeness.DIFFERENT


def test_half_of_a_packed_weight_that_is_lost_or_flipped_is_no_rounding() -> None:
    small = drawn(1, 512) * 0.4
    plain = packed(small).bfloat16()
    noise = drawn(2, 512) * 0.3
    for other in (small * 0, -small, small * 0.5):
        assert row(plain, packed(other).bfloat16()).closeness is Closeness.DIFFERENT
        assert row(packed(other).bfloat16(), plain).closeness is Closeness.DIFFERENT
    lost = torch.where(torch.arange(512) < 256, small * 0, noise)  # beside values that are noise
    assert row(plain, packed(lost).bfloat16()).closeness is Closeness.DIFFERENT


def test_the_largest_of_a_module_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []

    def look(gradient: Any) -> float:
        looked.append(gradient)
        return 1.0

    monkeypatch.setattr(rounding, "largest", look)
    modules = rounding.Modules({f"all.w{place}": torch.ones(1) for place in range(50)})
    assert {modules.largest_beside(f"all.w{place}") for place in range(50)} == {1.0}
    assert len(looked) == 50


def grown(changed: Callable[[Any], Any], dtype: Any = torch.float32) -> bool:
    """Whether a gradient of many sizes that is changed may be off by rounding that has grown."""
    plain = (drawn(3, 4096) * torch.logspace(0, -4, 4096)).to(dtype)
    found = row(plain, changed(plain).to(dtype), Facet.INPUT_GRADIENTS)
    assert found.closeness is Closeness.DIFFERENT
    return found.has_no_direction


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-4), (torch.bfloat16, 6e-2)])
def test_what_looks_like_rounding_that_has_grown_is_marked(dtype: Any, size: float) -> None:
    noise = (drawn(4, 4096) * size).to(dtype)
    assert grown(lambda plain: plain + noise, dtype)
    assert not grown(lambda plain: plain + noise * 10, dtype)  # too far for rounding
    assert not grown(lambda plain: plain * (1 + size), dtype)
    assert not grown(lambda plain: plain * torch.linspace(0, 2, 4096).clamp(1 - size, 1), dtype)


def test_small_values_that_are_lost_are_no_rounding_that_has_grown() -> None:
    kept = torch.arange(4096) < 4096 - 20
    assert not grown(lambda plain: plain * kept, torch.bfloat16)
