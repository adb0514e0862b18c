"""Values of a run in a form that can be saved, loaded and compared with those of another run.

Loading takes no class but torch's own. What is made of other tensors is spelled by a digest.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from haversack.torch.sharding import own_part
from haversack_server.worker import reach, tensor_parts
from haversack_server.worker.errors import BadWorkloadError
from haversack_server.worker.values import Values


def comparable(tensor: torch.Tensor) -> torch.Tensor | str:
    """Give the numbers of a tensor, of a sharded one the shard; spell one that has no memory.

    Raises BadWorkloadError for one whose numbers cannot be had.
    """
    if hasattr(tensor, "to_local"):
        return comparable(own_part(tensor.detach()))
    if tensor_parts.is_wrapper(tensor):
        return _spelled(tensor)
    plain = tensor_parts.without_class(tensor)
    is_opaque = plain.layout is torch._mkldnn  # type: ignore[attr-defined]
    return plain.to_dense() if is_opaque else plain


def all_comparable(named: Values) -> Values:
    """Give each tensor in that form, all else as it is."""
    return {n: comparable(v) if isinstance(v, torch.Tensor) else v for n, v in named.items()}


def save(values: dict[str, Values], file: str) -> None:
    """Save comparable values of every facet."""
    types: dict[int, torch.dtype] = {}
    with _unfilled(), _unchecked():
        copied = {
            facet: {name: _of_one_type(value, types) for name, value in named.items()}
            for facet, named in values.items()
        }
        torch.save(copied, file)


def load(file: str) -> dict[str, Values]:
    """Load what was saved, to the CPU: a GPU may have no room for it beside the model."""
    with _unfilled():
        found: dict[str, Values] = torch.load(
            file, weights_only=True, mmap=True, map_location="cpu"
        )
    return found


def _of_one_type(value: Any, types: dict[int, torch.dtype]) -> Any:
    """Copy what shares its memory with numbers of another type: torch saves no such pair."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    known = types.setdefault(value.untyped_storage().data_ptr(), value.dtype)
    return value if known is value.dtype else value.clone()


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
    """Write no checksums meanwhile, which loading does not read: 19 of the 33 ms for 29 MB."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


@contextlib.contextmanager
def _unfilled() -> Iterator[None]:
    """Fill no new memory meanwhile, as PyTorch does where it is to be deterministic.

    It has no kernel that fills types of less than a byte.
    """
    switches: Any = torch.utils.deterministic
    own = switches.fill_uninitialized_memory
    switches.fill_uninitialized_memory = False
    try:
        yield
    finally:
        switches.fill_uninitialized_memory = own


def _spelled(tensor: torch.Tensor) -> str:
    about, content = reach.tensor_digest(tensor)
    if not content:
        raise BadWorkloadError(
            f"the step makes a {type(tensor).__name__}, whose numbers cannot be read; give it a "
            "__tensor_flatten__, or plain tensors in its place"
        )
    return f"{about} {content}"
