"""Digests of long memory: equal for equal bytes wherever they lie, different for others."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="what is digested are torch's tensors")

from haversack_server.worker.memory_digest import LONG_BYTES, memory_digest  # noqa: E402
from haversack_server.worker.reach import tensor_digest  # noqa: E402

GIVEN = torch.randn(3, 8192, generator=torch.Generator().manual_seed(1))
SEVERAL_ROWS = 4 * LONG_BYTES
WORD = 2  # places of float32 in a word: the second is its upper half, with the sign on top


def digest(tensor: Any) -> str:
    return memory_digest(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def test_equal_bytes_have_equal_digests_wherever_they_lie() -> None:
    content = GIVEN.flatten().view(torch.uint8)
    for places in (1, 2, 3, 4, 5, 8):
        moved = torch.cat([torch.zeros(places, dtype=torch.uint8), content])[places:]
        assert digest(moved) == digest(content)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 3, 64, 4096])
def test_signs_that_are_flipped_are_seen_whichever_half_of_a_word_they_lie_in(
    upper: int, count: int
) -> None:
    changed = GIVEN.clone()
    changed.view(-1)[upper : count * WORD + upper : WORD] *= -1
    assert digest(changed) != digest(GIVEN)


def test_a_conjugate_is_another_tensor() -> None:
    complex_: Any = torch.view_as_complex(GIVEN.view(-1, 2).contiguous())
    assert tensor_digest(complex_)[1] != tensor_digest(complex_.conj())[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.roll(1, 0),
        lambda t: t.roll(1, 1),
        lambda t: t[[0, 2, 1]],
        lambda t: t.view(-1, WORD).flip(1).reshape(t.shape),
        lambda t: t.view(torch.int32).bitwise_not(),
        lambda t: t * 2,
        lambda t: t.view(torch.int64).view(-1).flip(0),
    ],
)
def test_what_moves_or_scales_values_changes_a_digest(change: Callable[[Any], Any]) -> None:
    assert digest(change(GIVEN).contiguous()) != digest(GIVEN)


def test_every_byte_counts_to_the_last() -> None:
    content = GIVEN.flatten().view(torch.uint8)[: SEVERAL_ROWS + 9].clone()
    found = {digest(content)}
    for place in (0, 3, 4, 7, 16383, 16384, 16387, 65535, SEVERAL_ROWS, SEVERAL_ROWS + 8):
        changed = content.clone()
        changed[place] ^= 1
        found.add(digest(changed))
    assert len(found) == 11


@pytest.mark.parametrize("size", [0, 1, LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 3, SEVERAL_ROWS])
def test_how_much_is_digested_counts(size: int) -> None:
    zeros = torch.zeros(size + 1, dtype=torch.uint8)
    assert digest(zeros) != digest(zeros[:size])


def test_a_default_device_of_the_user_changes_nothing() -> None:
    expected = tensor_digest(GIVEN)
    with torch.device("meta"):
        assert tensor_digest(GIVEN) == expected
