"""Messages between the server and its CUDA worker: a frame of JSON, then arrays as they lie.

Nothing is pickled. Knows nothing of what the messages say.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haversack_server.verify import frames
from haversack_server.verify.frames import FrameError

TYPES = ("int64", "bool")
MOST_BYTES = 1 << 31
"""Of one array; a million candidates, the most that a request may have, take 8 MB."""

Message = tuple[dict[str, Any], list[NDArray[Any]]]


def send(
    channel: socket.socket, message: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()
) -> None:
    """Send a message and one-dimensional arrays of ``TYPES``; blocks while nobody reads."""
    described = [[array.dtype.name, array.size] for array in arrays]
    frames.send(channel, {**message, "arrays": described})
    for array in arrays:
        channel.sendall(np.ascontiguousarray(array).view(np.uint8).data)


def receive(channel: socket.socket) -> Message | None:
    """Receive a message; None where the other end closed. Raises FrameError if it is none."""
    message = frames.receive(channel)
    if message is None:
        return None
    described = message.pop("arrays", None)
    if not isinstance(described, list):
        raise FrameError("a message does not say which arrays follow")
    return message, [_array(channel, each) for each in described]


def _array(channel: socket.socket, described: object) -> NDArray[Any]:
    match described:
        case [str() as name, int() as count] if name in TYPES and count >= 0:
            array = _empty(name, count)
        case _:
            raise FrameError(f"{described!r} describes no array")
    left = memoryview(array.view(np.uint8).data)
    while left:
        received = channel.recv_into(left)
        if not received:
            raise FrameError("the other end closed inside an array")
        left = left[received:]
    return array


def _empty(name: str, count: int) -> NDArray[Any]:
    if count * np.dtype(name).itemsize > MOST_BYTES:
        raise FrameError(f"an array of {count} {name} is above the limit of {MOST_BYTES} bytes")
    return np.empty(count, dtype=name)
