"""Frames between the server and its worker processes: four bytes of length, then a JSON object.

Knows nothing of what the objects say. Numbers that JSON has no word for (NaN, infinities) travel
as Python spells them, which both ends read.
"""

import json
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

HEADER_BYTES = 4
LARGEST_FRAME = 2**28  # bytes; a frame above it is a fault of the sender, not a report


class FrameError(Exception):
    """The other end sent something that is no frame."""


def pack(message: Mapping[str, Any]) -> bytes:
    """Spell an object as a frame."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > LARGEST_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes is above the limit of {LARGEST_FRAME}")
    return struct.pack("!I", len(body)) + body


def body_size(header: bytes, *, most_bytes: int = LARGEST_FRAME) -> int:
    """Read the length of the body that follows a header."""
    (size,) = struct.unpack("!I", header)
    if size > most_bytes:
        raise FrameError(f"a frame of {size} bytes is above the limit of {most_bytes}")
    return int(size)


def unpack(body: bytes, integer: Callable[[str], int] = int) -> dict[str, Any]:
    """Read the body of a frame; ``integer`` reads its integers."""
    try:
        message = json.loads(body, parse_int=integer)
    except (ValueError, RecursionError) as wrong:
        raise FrameError(f"a frame is not JSON: {wrong}") from wrong
    if not isinstance(message, dict):
        raise FrameError(f"a frame is a {type(message).__name__}, not an object")
    return message


def unpack_text(body: bytes) -> dict[str, Any]:
    """Read the body of a frame that callers will see.

    Python's text may hold halves of surrogate pairs, for which UTF-8, and so the wire, has no
    bytes; each becomes a question mark. Integers that the wire has no room for are an error.
    """
    message = unpack(body, _of_the_wire)
    try:
        text = json.dumps(message, ensure_ascii=False)
    except RecursionError as wrong:
        raise FrameError(f"a frame is not JSON: {wrong}") from wrong
    try:
        text.encode()
    except UnicodeEncodeError:
        return unpack(text.encode(errors="replace"))
    return message


def _of_the_wire(digits: str) -> int:
    value = int(digits)
    if not -(2**63) <= value < 2**63:
        raise FrameError(f"{digits[:40]} is no integer of 64 bits")
    return value


def send(channel: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a frame, blocking."""
    channel.sendall(pack(message))


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """Receive a frame, blocking; None where the other end closed."""
    header = _exactly(channel, HEADER_BYTES)
    if header is None:
        return None
    body = _exactly(channel, body_size(header))
    if body is None:
        raise FrameError("the other end closed inside a frame")
    return unpack(body)


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 2**20))
        if not part:
            return None
        parts += part
    return bytes(parts)
