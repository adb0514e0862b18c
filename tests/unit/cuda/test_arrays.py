"""What the server and its CUDA worker say to each other arrives as it was sent, or is refused."""

import socket
import struct
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack_server.cuda import arrays
from haversack_server.verify.frames import FrameError

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50), st.lists(st.booleans()))
def test_arrays_arrive_as_they_were_sent(numbers: list[int], flags: list[bool]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = np.array(numbers, dtype=np.int64), np.array(flags, dtype=np.bool_)
        arrays.send(ours, {"verb": "solve"}, sent)
        received = arrays.receive(theirs)
    assert received is not None
    message, found = received
    assert message == {"verb": "solve"}
    assert [each.dtype for each in found] == [np.int64, np.bool_]
    assert all((a == b).all() for a, b in zip(sent, found, strict=True))


def test_a_large_array_and_a_strided_one_arrive_whole(ends: Ends) -> None:
    ours, theirs = ends
    large = np.arange(300_000, dtype=np.int64)
    sender = threading.Thread(target=arrays.send, args=(ours, {}, [large, large[::3]]))
    sender.start()
    received = arrays.receive(theirs)
    sender.join()
    assert received is not None
    assert (received[1][0] == large).all()
    assert (received[1][1] == large[::3]).all()


def test_a_closed_end_is_no_message(ends: Ends) -> None:
    ours, theirs = ends
    ours.close()
    assert arrays.receive(theirs) is None


def frame(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"Traceback (most recent call last)", "above the limit"),
        (frame(b"[]"), "not an object"),
        (frame(b"{}"), "does not say which arrays follow"),
        (frame(b'{"arrays": [["object", 1]]}'), "describes no array"),
        (frame(b'{"arrays": [["int64", -1]]}'), "describes no array"),
        (frame(b'{"arrays": ["int64"]}'), "describes no array"),
        (frame(b'{"arrays": [["int64", 1000000000]]}'), "above the limit"),
        (frame(b'{"arrays": [["int64", 2]]}') + bytes(9), "closed inside an array"),
    ],
)
def test_what_is_no_message_is_refused(ends: Ends, sent: bytes, words: str) -> None:
    ours, theirs = ends
    ours.sendall(sent)
    ours.shutdown(socket.SHUT_WR)
    with pytest.raises(FrameError, match=words):
        arrays.receive(theirs)
