"""Frames over a socket: whole, in pieces, cut off, and no frames at all."""

import re
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack_server.verify import frames

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.text(), json_values))
def test_an_object_comes_back_as_it_was(message: dict[str, object]) -> None:
    frame = frames.pack(message)
    header, body = frame[: frames.HEADER_BYTES], frame[frames.HEADER_BYTES :]
    assert frames.body_size(header) == len(body)
    assert frames.unpack(body) == message


def test_frames_follow_one_another_until_the_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for number in range(3):
            frames.send(theirs, {"number": number})
        theirs.shutdown(socket.SHUT_WR)
        assert [frames.receive(ours) for _ in range(4)] == [
            {"number": 0},
            {"number": 1},
            {"number": 2},
            None,
        ]


def test_an_end_inside_a_frame_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frames.pack({"a": 1})[:-1])
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(frames.FrameError):
            frames.receive(ours)


@pytest.mark.parametrize("body", [b"", b"no", b"[1]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_an_error(body: bytes) -> None:
    with pytest.raises(frames.FrameError):
        frames.unpack(body)


@pytest.mark.parametrize("body", [b'{"a\\ud800": ["\\uDC00"]}', b'{"a\xed\xa0\x80": ["\\udc00"]}'])
def test_text_for_callers_has_no_halves_of_letters(body: bytes) -> None:
    ((name, (text,)),) = frames.unpack_text(body).items()
    assert re.fullmatch(r"a\?+", name)
    assert text == "?"
    whole = frames.pack({"a": "\U0001f392"})[frames.HEADER_BYTES :]
    assert frames.unpack_text(whole) == {"a": "\U0001f392"}


@pytest.mark.parametrize("digits", [b"9223372036854775808", b"-9223372036854775809", b"9" * 5000])
def test_integers_that_the_wire_has_no_room_for_are_an_error(digits: bytes) -> None:
    with pytest.raises(frames.FrameError):
        frames.unpack_text(b'{"a": [' + digits + b"]}")
    assert frames.unpack_text(b'{"a": -9223372036854775808}') == {"a": -(2**63)}


def test_a_length_above_the_limit_is_an_error() -> None:
    with pytest.raises(frames.FrameError):
        frames.body_size(struct.pack("!I", frames.LARGEST_FRAME + 1))
