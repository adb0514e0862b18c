"""Digests of tensors that are no arrays, or that would be too large as such."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import Tensor  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from haversack_server.worker.reach import tensor_digest  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
SIZE = 150_000  # squared, more than a job may have


def content(tensor: Any) -> str:
    return tensor_digest(tensor)[1]


def vast(value: float, place: int = 0) -> Any:
    places = torch.tensor([[place], [0]])
    return torch.sparse_coo_tensor(places, torch.tensor([value]), (SIZE, SIZE))


@pytest.mark.parametrize("layout", ["coalesce", "to_sparse_csr"])
def test_a_vast_sparse_tensor_is_digested_by_its_parts(layout: str) -> None:
    one, again, value, place = (
        content(getattr(each, layout)()) for each in (vast(1.0), vast(1.0), vast(2.0), vast(1.0, 7))
    )
    assert one == again
    assert len({one, value, place}) == 3


def test_entries_of_one_place_are_added_up() -> None:
    twice = torch.sparse_coo_tensor(torch.zeros(2, 2), torch.ones(2), (SIZE, SIZE))
    assert content(twice) == content(vast(2.0))


def test_a_vast_expanded_tensor_is_digested_once() -> None:
    zeros, ones = (torch.full((1, 1), each).expand(SIZE, SIZE) for each in (0.0, 1.0))
    assert content(zeros) == content(torch.zeros(1))
    assert content(zeros) != content(ones)


@pytest.mark.parametrize("small", [torch.ones(1, 3).expand(4, 3), torch.tensor(1.0).expand(1)])
def test_a_small_expanded_tensor_is_digested_as_its_copy_is(small: Any) -> None:
    assert content(small) == content(small.clone(memory_format=torch.contiguous_format))


def test_a_tensor_that_is_made_of_others_is_digested_by_them() -> None:
    two: Any = TwoTensor  # has no types
    first = content(two(torch.ones(2), torch.ones(2)))
    assert first == content(two(torch.ones(2), torch.ones(2)))
    assert first != content(two(torch.ones(2), torch.zeros(2)))


def test_a_class_is_asked_for_no_operation() -> None:
    class Counting(Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            cls.calls += 1
            return Tensor.__torch_function__(*args, **kwargs)  # type: ignore[no-untyped-call]

    tensor = torch.ones(2).as_subclass(Counting)
    Counting.calls = 0
    assert content(tensor) == content(torch.ones(2))
    assert Counting.calls == 0
