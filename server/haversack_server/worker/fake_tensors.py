"""Tensors without bytes, for models that are too large to be really built; same storages, counted.

Fake CPU tensors, never fake ``cuda`` ones, which abort the process. Two functions of transformers
look at the values of tensors, or at whether there are any, to choose a mask. Here they say what
they find for the microbatch of a trace, one whole sequence in each row, so that attention takes the
same path as with real tensors. Tests hold both against each other: they differ by 16 bytes for each
token.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from torch._subclasses.fake_tensor import FakeTensorMode


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Make every tensor fake while the context lasts."""
    masks = "transformers.masking_utils"
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        mock.patch(f"{masks}.is_tracing", return_value=False),
        mock.patch(f"{masks}.find_packed_sequence_indices", return_value=None),
    ):
        yield
