"""Weights from files into a workload's model, before any of its runs. Nothing is unpickled.

Names must be those of the model's state, all of them, so that no run is of weights that nobody
meant. Bytes are read into memory and never mapped: a file that shrinks meanwhile is an error.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import IO, Any

import torch
from torch import nn

from haversack.errors import InvalidRequestError
from haversack.torch import Workload
from haversack_server.verify.safetensors import StoredTensor, UnreadableError, read_header
from haversack_server.verify.weight_files import files_of
from haversack_server.worker.errors import BadWorkloadError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def take_weights(workload: Workload, path: str, folders: Sequence[str]) -> None:
    """Copy the tensors of a file, or of all files of a folder, into the workload's model.

    Raises BadWorkloadError for files that cannot be read and names or shapes that do not fit.
    """
    model = workload.model
    if not isinstance(model, nn.Module):
        raise BadWorkloadError(f"weights are a module's, but the model is a {type(model).__name__}")
    try:
        files = files_of(path, folders)
    except InvalidRequestError as wrong:
        raise BadWorkloadError(str(wrong)) from wrong
    state = model.state_dict(keep_vars=True)
    taken: dict[str, str] = {}
    with torch.no_grad():
        for file in files:
            for name, tensor in _tensors(file):
                if name in taken:
                    raise BadWorkloadError(f"{name!r} is in {taken[name]} and in {file}")
                taken[name] = file
                _take(state, name, tensor, file)
    _check_whole(state, taken, path)


def _take(state: dict[str, Any], name: str, tensor: torch.Tensor, file: str) -> None:
    own = state.get(name)
    if not isinstance(own, torch.Tensor):
        near = ", ".join(list(state)[:3])
        raise BadWorkloadError(
            f"{file} holds {name[:200]!r}, which the model's state does not have; it begins with "
            f"{near}"
        )
    if own.shape != tensor.shape:
        raise BadWorkloadError(
            f"{name!r} has the shape {tuple(tensor.shape)} in {file} and {tuple(own.shape)} in the "
            "model"
        )
    own.copy_(tensor)


def _check_whole(state: dict[str, Any], taken: dict[str, str], path: str) -> None:
    """Check that everything came; of tied tensors one name will do."""
    known = {id(state[name]) for name in taken}
    missing = [
        name
        for name, own in state.items()
        if isinstance(own, torch.Tensor) and id(own) not in known
    ]
    if missing:
        raise BadWorkloadError(
            f"{path} lacks {len(missing)} of the model's {len(state)} tensors, first {missing[0]!r}"
        )


def _tensors(file: str) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        with _opened(file) as opened:
            for stored in read_header(opened):
                yield stored.name, _tensor(opened, stored)
    except (OSError, UnreadableError) as wrong:
        raise BadWorkloadError(f"{file} cannot be read: {wrong}") from wrong


def _opened(file: str) -> IO[bytes]:
    """Open a regular file that no link has taken the place of; a pipe would never answer."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError("it is no regular file")
    return os.fdopen(descriptor, "rb")


def _tensor(file: IO[bytes], stored: StoredTensor) -> torch.Tensor:
    file.seek(stored.offset)
    read = bytearray(file.read(stored.size_bytes))
    # An empty buffer has no memory that a tensor could be of.
    content = torch.frombuffer(read, dtype=torch.uint8) if read else torch.empty(0).byte()
    if len(read) != stored.size_bytes:
        raise UnreadableError(f"it ended inside its tensor {stored.name[:200]!r}")
    if stored.dtype == "BOOL" and bool((content > 1).any()):
        raise UnreadableError(f"its tensor {stored.name[:200]!r} holds bytes that are no BOOL")
    return content.view(_DTYPES[stored.dtype]).reshape(stored.shape)
