"""The safetensors format: which tensors a file holds, and where. Strict, and without torch.

A file is 8 bytes that count a header, the header, and the tensors' bytes without a gap. The header
is a JSON object of name to dtype, shape and the two ends of its bytes
(https://github.com/huggingface/safetensors, "Format"). Nothing in it is code. Whatever a header
says is checked against the file's own size before a byte of a tensor is read.
"""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

from haversack.checks import shortly
from haversack.errors import InvalidRequestError
from haversack.strict_json import parse_object

LONGEST_HEADER = 100_000_000  # bytes: the limit of the format's own library
_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_MOST_DIMENSIONS = 64  # more than any tensor of torch has; bounds the product of a hostile shape
_LARGEST_NUMBER = 2**63 - 1
_ITEM_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


class UnreadableError(Exception):
    """A file is no safetensors file, or none of this reader's; says what is wrong with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor:
    """One tensor of a file: where its bytes are, counted from the file's own begin."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


def read_header(file: IO[bytes]) -> list[StoredTensor]:
    """Read which tensors a file holds, in the order of their bytes. Raises UnreadableError."""
    file_bytes = os.fstat(file.fileno()).st_size
    text, begin = _header(file, file_bytes)
    try:
        header = parse_object(text, field="header", max_bytes=LONGEST_HEADER)
    except InvalidRequestError as wrong:
        raise UnreadableError(f"its header is no JSON object: {wrong}") from wrong
    _check_metadata(header.pop(_METADATA, {}))
    found = [_tensor(name, entry, begin) for name, entry in header.items()]
    found.sort(key=lambda tensor: (tensor.offset, tensor.size_bytes))
    _check_covered(found, begin, file_bytes)
    return found


def _header(file: IO[bytes], file_bytes: int) -> tuple[str, int]:
    """Read the header's text; gives where the tensors begin, too."""
    if file_bytes < _LENGTH_BYTES:
        raise UnreadableError(f"it has {file_bytes} bytes, too few for a header's length")
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > min(LONGEST_HEADER, file_bytes - _LENGTH_BYTES):
        raise UnreadableError(
            f"its header would have {length} bytes; the file has {file_bytes}, and at most "
            f"{LONGEST_HEADER} of a header are read"
        )
    content = file.read(length)
    if len(content) != length:
        raise UnreadableError("it ends inside its header")
    try:
        return content.decode("utf-8"), _LENGTH_BYTES + length
    except UnicodeDecodeError as wrong:
        raise UnreadableError(f"its header is not UTF-8, at byte {wrong.start}") from wrong


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise UnreadableError(f"its {_METADATA} is no object of texts")


def _tensor(name: str, entry: Any, begin: int) -> StoredTensor:
    told = f"its tensor {shortly(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise UnreadableError(f"{told} has not exactly a dtype, a shape and data_offsets")
    dtype, shape, ends = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        known = ", ".join(_ITEM_BYTES)
        raise UnreadableError(f"{told} is of the dtype {shortly(dtype)}; {known} are read")
    if not _are_whole(shape, _MOST_DIMENSIONS) or not _are_whole(ends, 2) or len(ends) != 2:
        raise UnreadableError(f"{told} has a shape or data_offsets that are no whole numbers")
    size_bytes = math.prod(shape) * _ITEM_BYTES[dtype]
    if ends[1] - ends[0] != size_bytes:
        raise UnreadableError(
            f"{told} has {shortly(ends[1] - ends[0])} bytes, and its shape {shortly(size_bytes)}"
        )
    return StoredTensor(
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        offset=begin + ends[0],
        size_bytes=size_bytes,
    )


def _are_whole(numbers: Any, most: int) -> bool:
    return (
        isinstance(numbers, list)
        and len(numbers) <= most
        and all(type(each) is int and 0 <= each <= _LARGEST_NUMBER for each in numbers)
    )


def _check_covered(found: Iterable[StoredTensor], begin: int, file_bytes: int) -> None:
    """Check that tensors lie one after the other, from the header to the file's end."""
    end = begin
    for tensor in found:
        if tensor.offset != end:
            kind = "overlaps the one before it" if tensor.offset < end else "begins after a gap"
            raise UnreadableError(f"its tensor {shortly(tensor.name)} {kind}")
        end += tensor.size_bytes
    if end != file_bytes:
        raise UnreadableError(
            f"its tensors end at byte {shortly(end)}, and the file at {file_bytes}"
        )
