"""Digests that are made on a device: the same operations, here on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is digested are torch's tensors")

from haversack_server.worker import device_digest, reach  # noqa: E402
from haversack_server.worker.device_digest import digest_in_place  # noqa: E402

GIVEN = torch.arange(1, 101, dtype=torch.float32)


def swapped(tensor: Any) -> None:
    tensor[:4] = tensor[[2, 3, 0, 1]]


def two_signs(tensor: Any) -> None:
    tensor[[1, 7]] *= -1


def across_parts(tensor: Any) -> None:
    tensor[:2], tensor[10:12] = tensor[10:12].clone(), tensor[:2].clone()


def one_bit(tensor: Any) -> None:
    tensor.view(torch.int32)[-1] ^= 1


def all_bits(tensor: Any) -> None:
    tensor.view(torch.int64).bitwise_not_()


def all_bits_of_a_word(tensor: Any) -> None:
    tensor.view(torch.int64)[3] ^= -1


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_digest, "_WORDS", 5)


@pytest.mark.parametrize(
    "change", [swapped, two_signs, across_parts, one_bit, all_bits, all_bits_of_a_word]
)
def test_what_cancels_in_a_sum_changes_a_digest(change: Callable[[Any], None]) -> None:
    changed = GIVEN.clone()
    assert digest_in_place(changed) == digest_in_place(GIVEN)
    change(changed)
    assert digest_in_place(changed) != digest_in_place(GIVEN)


def test_no_bits_and_all_bits_have_two_digests() -> None:
    nothing = torch.zeros(20, dtype=torch.int64)
    assert digest_in_place(nothing) != digest_in_place(~nothing)


def test_a_tail_that_is_no_word_and_an_odd_beginning_count_too() -> None:
    content = torch.arange(40, dtype=torch.uint8)
    assert digest_in_place(content[3:]) == digest_in_place(content[3:].clone())
    found = {digest_in_place(content[:size]) for size in (0, 1, 7, 8, 9, 39, 40)}
    assert len(found) == 7


def test_a_large_tensor_of_a_device_is_digested_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "_DEVICES", ("cpu",))
    monkeypatch.setattr(reach, "LARGE_BYTES", 400)
    assert reach.tensor_digest(GIVEN)[1] == digest_in_place(GIVEN)
    assert reach.tensor_digest(GIVEN[1:])[1] != digest_in_place(GIVEN[1:])
    turned = GIVEN.reshape(10, 10).T
    assert reach.tensor_digest(turned, as_it_lies=True)[1] == digest_in_place(GIVEN)
    assert reach.tensor_digest(turned)[1] == digest_in_place(turned.contiguous())
