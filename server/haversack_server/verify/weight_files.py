"""Which files of weights a job may read: safetensors, inside folders that the operator allowed.

Pickles are refused by name, before anything is opened. Checked where a request comes in, by its
text, and again by the job, which resolves links.
"""

import os
import pathlib
from collections.abc import Sequence

from haversack.errors import InvalidRequestError

SUFFIX = ".safetensors"
ANYWHERE = (os.sep,)  # a server inside the caller's own process reads what the caller may read
# What torch.save and torch.export write, and others that hold pickles: to load one may run code.
_PROGRAMS = (".pt", ".pth", ".pt2", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".npz")


def check_weights(path: str, folders: Sequence[str]) -> None:
    """Raise InvalidRequestError unless the path names what may be read, by its text."""
    suffix = pathlib.PurePath(path).suffix.lower()
    if suffix in _PROGRAMS:
        _refuse(
            f"a {suffix} file may hold a pickle, whose loading runs code, and none is read; "
            "save the weights as safetensors"
        )
    if not os.path.isabs(path) or "\0" in path:
        _refuse("give an absolute path, of the machine that the job runs on")
    if not is_inside(os.path.normpath(path), folders):
        where = f"only from {', '.join(folders)}" if folders else "from no folder"
        _refuse(
            f"{path[:200]!r} is not allowed: weights are read {where} here, as the operator says "
            "with --weights-dir"
        )


def is_inside(path: str, folders: Sequence[str]) -> bool:
    """Whether a path lies in one of the folders, or is one; both are taken as they are spelt."""
    return any(os.path.commonpath((path, folder)) == folder for folder in map(_plain, folders))


def files_of(path: str, folders: Sequence[str]) -> list[str]:
    """List the files to read, links resolved. Raises InvalidRequestError."""
    resolved = [os.path.realpath(folder) for folder in folders]
    named = os.path.realpath(path)
    found = [named]
    if os.path.isdir(named):
        inside = sorted(pathlib.Path(named).glob(f"*{SUFFIX}"))
        found = [os.path.realpath(each) for each in inside]
        if not found:
            _refuse(f"{path[:200]!r} holds no {SUFFIX} file; no other kind is read")
    elif not os.path.isfile(named):
        _refuse(f"there is no file or folder {path[:200]!r} where the job runs")
    elif not named.endswith(SUFFIX):
        _refuse(f"{path[:200]!r} is no {SUFFIX} file, and no other kind is read")
    for each in found:
        if not is_inside(each, resolved):
            _refuse(f"{path[:200]!r} leads to {each[:200]!r}, outside of what may be read")
    return found


def check_folder(folder: str) -> None:
    """Raise InvalidRequestError unless a folder of weights is named absolutely."""
    if not os.path.isabs(folder):
        raise InvalidRequestError(
            f"{folder[:200]!r} is no absolute path of a folder", field="weights_dir"
        )


def _plain(folder: str) -> str:
    return os.path.normpath(folder)


def _refuse(sentence: str) -> None:
    raise InvalidRequestError(sentence, field="weights")
