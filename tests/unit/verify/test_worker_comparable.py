"""Values that a file must hold and another process must load, whatever classes they are of."""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import Tensor  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from haversack.verify import Facet  # noqa: E402
from haversack_server.verify.comparison import Closeness  # noqa: E402
from haversack_server.worker import comparable, compare, tensor_parts  # noqa: E402
from haversack_server.worker.errors import BadWorkloadError  # noqa: E402

ONES = torch.ones(2, 3)
TWO: Any = TwoTensor  # has no types
BYTES = torch.zeros(16, dtype=torch.uint8)


class Tagged(Tensor):
    """Has memory of its own."""


class Strict(Tensor):
    """Has memory of its own, and no operation."""

    @classmethod
    def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("there is no operation")


class Closed(Strict):
    """Has no memory, and holds nothing."""

    @staticmethod
    def __new__(cls) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, (3,))


class Wrapping(Closed):
    """Has no memory, and says nowhere what it holds."""

    def __init__(self) -> None:
        self.held = torch.ones(3)


def saved(tmp_path: pathlib.Path, **values: Any) -> Any:
    file = str(tmp_path / "values")
    comparable.save({"OUTPUTS": comparable.all_comparable(values)}, file)
    return comparable.load(file)["OUTPUTS"]


@pytest.mark.parametrize(
    "value",
    [
        ONES.as_subclass(Tagged),
        torch.nn.Parameter(ONES.as_subclass(Tagged)),
        torch.Tensor._make_subclass(Strict, ONES),
        ONES.to_mkldnn(),
    ],
    ids=["tagged", "tagged parameter", "without operations", "mkldnn"],
)
def test_what_has_memory_of_its_own_is_a_tensor_of_torch(
    tmp_path: pathlib.Path, value: Any
) -> None:
    found = saved(tmp_path, y=value)["y"]
    assert type(found) is torch.Tensor
    assert torch.equal(found, ONES)


@pytest.mark.parametrize(
    "views",
    [
        (torch.ones(3, dtype=torch.complex64), torch.view_as_real),
        (BYTES, lambda each: each.view(torch.int32)),
    ],
    ids=["complex", "packed"],
)
def test_views_of_one_memory_as_two_types_are_saved(tmp_path: pathlib.Path, views: Any) -> None:
    base, view = views
    found = saved(tmp_path, base=base, view=view(base))
    assert torch.equal(found["base"], base)
    assert torch.equal(found["view"], view(base))


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("dtype", [torch.float4_e2m1fn_x2, torch.bits8])
def test_types_that_nothing_fills_are_loaded(tmp_path: pathlib.Path, dtype: Any) -> None:
    assert saved(tmp_path, y=BYTES.view(dtype))["y"].dtype is dtype
    assert torch.utils.deterministic.fill_uninitialized_memory


@pytest.mark.parametrize("wrapping", [TWO(ONES, 2 * ONES), Wrapping()])
def test_what_is_made_of_others_is_spelled(wrapping: Any) -> None:
    first = comparable.comparable(wrapping)
    assert isinstance(first, str)
    inner = wrapping.b if isinstance(wrapping, TwoTensor) else wrapping.held
    inner += 1
    assert comparable.comparable(wrapping) != first


def test_what_cannot_be_read_is_said_in_a_sentence() -> None:
    with pytest.raises(BadWorkloadError, match="a Closed, whose numbers cannot be read"):
        comparable.comparable(Closed())


def compared(plain: Any, other: Any) -> Any:
    return next(compare.rows(Facet.OUTPUTS, {"y": plain}, {"y": other}), None)


def sparse(values: list[float], columns: int = 120_000) -> Any:
    places = torch.arange(len(values)).repeat(2, 1)
    return torch.sparse_coo_tensor(places, torch.tensor(values), (120_000, columns))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_vast_sparse_tensors_are_compared_by_their_parts() -> None:
    assert tensor_parts.is_vast(sparse([1.0]))
    assert compared(sparse([1.0, 2.0]), sparse([1.0, 2.0])) is None
    near = compared(sparse([1.0, 2.0]), sparse([1.0, 2.000001]))
    assert (near.closeness, near.note[:7]) == (Closeness.CLOSE, "values:")
    assert compared(sparse([1.0]), sparse([2.0])).closeness is Closeness.DIFFERENT
    assert "shape (2, 1)" in compared(sparse([1.0]), sparse([1.0, 2.0])).note
    assert "120001" in compared(sparse([1.0]), sparse([1.0], 120_001)).note
    assert "sparse_csr" in compared(sparse([1.0]), sparse([1.0]).to_sparse_csr()).note


def test_one_number_that_is_expanded_is_compared_too() -> None:
    assert compared(torch.tensor(1.0).expand(1), torch.tensor(1.0).expand(1)) is None


def test_what_is_expanded_is_compared_once() -> None:
    vast = torch.zeros(1, 1).expand(150_000, 150_000)
    assert "shape (150000, 150000)" in compared(vast, torch.zeros(1, 1)).note
    assert compared(vast, torch.zeros(1, 1).expand(150_000, 150_000)) is None
    assert compared(vast, torch.ones(1, 1).expand(150_000, 150_000)).max_difference == 1.0
