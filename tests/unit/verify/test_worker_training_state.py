"""Samples of a global batch: the same however ranks share them, and whatever holds them."""

from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.worker import training_state  # noqa: E402

WHOLE = torch.arange(8.0).reshape(4, 2)
MARKS = torch.tensor([1, 0, 1, 1])


def samples(*parts: tuple[Any, ...]) -> list[str]:
    return sorted(each for part in parts for each in training_state._samples(part))


def test_ranks_that_share_a_batch_otherwise_have_the_same_samples() -> None:
    whole = samples((WHOLE, {"marks": MARKS}))
    assert len(set(whole)) == 4
    assert whole == samples((WHOLE[2:], {"marks": MARKS[2:]}), (WHOLE[:2], {"marks": MARKS[:2]}))
    assert whole != samples((WHOLE, {"marks": MARKS.flip(0)}))


def test_arrays_have_samples_as_tensors_have() -> None:
    array = WHOLE.numpy()
    assert samples((array[:1],), (array[1:],)) == samples((WHOLE,))
    assert samples((array,)) != samples((numpy.ascontiguousarray(array[:, ::-1]),))


def test_a_batch_without_rows_is_one_sample() -> None:
    assert len(samples((WHOLE, torch.tensor(1.0)))) == 1
