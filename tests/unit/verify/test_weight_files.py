"""Which files of weights may be read: by name, by folder, and where links lead."""

import os
import pathlib

import pytest

from haversack.errors import InvalidRequestError
from haversack_server.verify.weight_files import (
    ANYWHERE,
    check_folder,
    check_weights,
    files_of,
    is_inside,
)


@pytest.mark.parametrize(
    "name", ["w.pt", "w.PTH", "w.pt2", "pytorch_model.bin", "w.ckpt", "w.pkl", "w.npz"]
)
def test_what_may_hold_a_pickle_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"weights: .* may hold a pickle"):
        check_weights(f"/models/{name}", ANYWHERE)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("w.safetensors", "absolute path"),
        ("/models/\0.safetensors", "absolute path"),
        ("/models/../etc/w.safetensors", "not allowed"),
        ("/modelsevil/w.safetensors", "not allowed"),
        ("/other", "only from /models"),
    ],
)
def test_a_path_outside_of_the_folders_is_refused(path: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        check_weights(path, ("/models",))


def test_without_a_folder_nothing_is_read_and_a_caller_s_own_server_reads_anywhere() -> None:
    with pytest.raises(InvalidRequestError, match="from no folder"):
        check_weights("/models/w.safetensors", ())
    check_weights("/models/w.safetensors", ANYWHERE)
    check_weights("/models/deep/w.safetensors", ("/models/",))
    assert is_inside("/models", ("/models",))


def test_a_folder_is_named_absolutely() -> None:
    check_folder("/models")
    with pytest.raises(InvalidRequestError, match="weights_dir: 'models' is no absolute path"):
        check_folder("models")


def test_a_folder_is_its_safetensors_files_in_order(tmp_path: pathlib.Path) -> None:
    for name in ("b.safetensors", "a.safetensors", "a.bin", "readme.md"):
        (tmp_path / name).touch()
    found = files_of(str(tmp_path), (str(tmp_path),))
    assert [pathlib.Path(each).name for each in found] == ["a.safetensors", "b.safetensors"]


def test_what_is_no_safetensors_is_no_file_to_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "pytorch_model.bin").touch()
    (tmp_path / "notes.txt").touch()
    folders = (str(tmp_path),)
    for path, words in (
        ("empty", "holds no .safetensors file"),
        ("notes.txt", "is no .safetensors file"),
        ("gone.safetensors", "no file or folder"),
    ):
        with pytest.raises(InvalidRequestError, match=words):
            files_of(str(tmp_path / path), folders)


def test_a_link_out_of_the_folder_is_refused(tmp_path: pathlib.Path) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "secret.safetensors"
    allowed.mkdir()
    outside.touch()
    os.symlink(outside, allowed / "w.safetensors")
    for path in (allowed / "w.safetensors", allowed):
        check_weights(str(path), (str(allowed),))
        with pytest.raises(InvalidRequestError, match="outside of what may be read"):
            files_of(str(path), (str(allowed),))
