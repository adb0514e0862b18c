"""The reader of safetensors: what a good file holds, and every way in which a header may lie."""

import io
import json
import pathlib
import struct
import tempfile
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack_server.verify.safetensors import StoredTensor, UnreadableError, read_header

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HUGE = 2**63


def opened(content: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever reads it closes it
    file.write(content)
    file.seek(0)
    return file


def read(content: bytes) -> list[StoredTensor]:
    with opened(content) as file:
        return read_header(file)


def file_of(header: Any, data: bytes = bytes(8), *, text: bytes | None = None) -> bytes:
    written = json.dumps(header).encode() if text is None else text
    return struct.pack("<Q", len(written)) + written + data


def test_tensors_come_in_the_order_of_their_bytes_with_their_places() -> None:
    header = {
        "late": {"dtype": "BF16", "shape": [3, 1], "data_offsets": [8, 14]},
        "__metadata__": {"format": "pt"},
        "early": ENTRY,
        "empty": {"dtype": "I64", "shape": [0, 5], "data_offsets": [8, 8]},
        "number": {"dtype": "BOOL", "shape": [], "data_offsets": [14, 15]},
    }
    content = file_of(header, bytes(15))
    begin = len(content) - 15
    found = read(content)
    assert [(each.name, each.shape, each.offset - begin) for each in found] == [
        ("early", (2,), 0),
        ("empty", (0, 5), 8),
        ("late", (3, 1), 8),
        ("number", (), 14),
    ]


def test_padding_of_a_header_with_spaces_is_read() -> None:
    assert [
        each.name for each in read(file_of(None, text=json.dumps({"w": ENTRY}).encode() + b"   "))
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "too few"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "would have 18446744073709551615 bytes"),
        (struct.pack("<Q", 100) + b"{}", "would have 100 bytes"),
        (file_of(None, text=b"\xff\xfe{}"), "not UTF-8"),
        (file_of(None, text=b"[]"), "no JSON object"),
        (file_of(None, text=b"{"), "no JSON object"),
        (file_of(None, text=b'{"w": {}, "w": {}}'), "no JSON object"),
        (file_of(None, text=b"[" * 100_000), "no JSON object"),
        (file_of(None, text=b'{"w": ' + b"9" * 5000 + b"}"), "no JSON object"),
        (b"\x80\x04\x95" + bytes(100), "would have"),  # the begin of a pickle
        (b"PK\x03\x04" + bytes(100), "would have"),  # of a zip, as torch.save writes them
    ],
)
def test_a_file_that_is_none_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(UnreadableError, match=words):
        read(content)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "not exactly"),
        (7, "not exactly"),
        ({**ENTRY, "code": "x"}, "not exactly"),
        ({**ENTRY, "dtype": "O"}, "of the dtype 'O'"),
        ({**ENTRY, "dtype": ["F32"]}, "of the dtype"),
        ({**ENTRY, "shape": [-2]}, "no whole numbers"),
        ({**ENTRY, "shape": [2.0]}, "no whole numbers"),
        ({**ENTRY, "shape": [True, 2]}, "no whole numbers"),
        ({**ENTRY, "shape": [HUGE]}, "no whole numbers"),
        ({**ENTRY, "shape": [1] * 65}, "no whole numbers"),
        ({**ENTRY, "data_offsets": [0]}, "no whole numbers"),
        ({**ENTRY, "data_offsets": [0, 8, 8]}, "no whole numbers"),
        ({**ENTRY, "data_offsets": [8, 0]}, "and its shape 8"),
        ({**ENTRY, "shape": [HUGE - 1, HUGE - 1]}, "and its shape"),
        ({**ENTRY, "data_offsets": [4, 12]}, "begins after a gap"),
        ({**ENTRY, "shape": [4], "data_offsets": [0, 16]}, "end at byte"),
        ({**ENTRY, "shape": [1], "data_offsets": [0, 4]}, "end at byte"),
    ],
)
def test_an_entry_that_lies_is_refused(entry: Any, words: str) -> None:
    with pytest.raises(UnreadableError, match=words):
        read(file_of({"w": entry}))


@pytest.mark.parametrize("metadata", [[], "x", {"a": 1}])
def test_metadata_is_texts(metadata: Any) -> None:
    with pytest.raises(UnreadableError, match="no object of texts"):
        read(file_of({"__metadata__": metadata, "w": ENTRY}))


def test_tensors_do_not_overlap() -> None:
    with pytest.raises(UnreadableError, match="'other' overlaps"):
        read(file_of({"w": ENTRY, "other": {**ENTRY, "data_offsets": [4, 12]}}, bytes(12)))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_file_or_refused(content: bytes) -> None:
    try:
        found = read(content)
    except UnreadableError:
        return
    assert sum(each.size_bytes for each in found) <= len(content)


@given(st.data())
def test_a_file_with_a_byte_changed_never_leads_outside_of_itself(data: st.DataObject) -> None:
    content = bytearray(file_of({"w": ENTRY, "v": {**ENTRY, "data_offsets": [8, 16]}}, bytes(16)))
    place = data.draw(st.integers(0, len(content) - 17))
    content[place] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(content))
    except UnreadableError:
        return
    assert all(0 < each.offset <= len(content) - each.size_bytes for each in found)


def test_what_the_library_writes_is_read(tmp_path: pathlib.Path) -> None:
    library: Any = pytest.importorskip("safetensors.numpy", reason="needs safetensors")
    numpy = pytest.importorskip("numpy", reason="needs numpy")
    given_arrays = {
        "b": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        "a": numpy.array([True, False]),
    }
    library.save_file(given_arrays, tmp_path / "w.safetensors", metadata={"format": "np"})
    with (tmp_path / "w.safetensors").open("rb") as file:
        found = {each.name: each for each in read_header(file)}
        for name, array in given_arrays.items():
            file.seek(found[name].offset)
            assert io.BytesIO(file.read(found[name].size_bytes)).getvalue() == array.tobytes()
            assert found[name].shape == array.shape
