"""Weights of files in a model: all of them, by their names, and nothing by chance."""

import json
import os
import pathlib
import struct
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="weights are a module's")

from torch import nn  # noqa: E402

from haversack.torch import Workload  # noqa: E402
from haversack_server.worker.errors import BadWorkloadError  # noqa: E402
from haversack_server.worker.weights import take_weights  # noqa: E402

KINDS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.bool: "BOOL"}


def write(file: pathlib.Path, tensors: dict[str, Any]) -> pathlib.Path:
    """Write a file as the format says, without its library."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        content = bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())
        ends = [len(data), len(data) + len(content)]
        kind = KINDS[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": ends}
        data += content
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


class Tied(nn.Module):
    """Two layers of one weight, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("count", torch.zeros(3, dtype=torch.int64))


WHOLE = {
    "first.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "count": torch.tensor([5, 6, 7]),
}


def taken(path: pathlib.Path, folder: pathlib.Path) -> Tied:
    model = Tied()
    take_weights(Workload(model), str(path), (str(folder),))
    return model


def test_every_tensor_is_copied_and_ties_stay(tmp_path: pathlib.Path) -> None:
    model = taken(write(tmp_path / "w.safetensors", WHOLE), tmp_path)
    assert torch.equal(model.first.weight, WHOLE["first.weight"])
    assert model.second.weight is model.first.weight
    assert torch.equal(model.get_buffer("count"), WHOLE["count"])
    assert model.first.weight.requires_grad


def test_a_folder_is_one_state_and_types_are_the_models_own(tmp_path: pathlib.Path) -> None:
    narrow = {"first.weight": WHOLE["first.weight"].bfloat16()}
    write(tmp_path / "1.safetensors", narrow)
    write(tmp_path / "2.safetensors", {"count": WHOLE["count"]})
    model = taken(tmp_path, tmp_path)
    assert model.first.weight.dtype == torch.float32
    assert torch.equal(model.first.weight, WHOLE["first.weight"])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"count": None}, "lacks 1 of the model's 3 tensors, first 'count'"),
        ({"other": torch.zeros(2)}, "holds 'other', which the model's state does not have"),
        ({"count": torch.zeros(4, dtype=torch.int64)}, r"shape \(4,\) in .* and \(3,\) in the"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: pathlib.Path, changed: dict[str, Any], words: str
) -> None:
    tensors = {name: each for name, each in {**WHOLE, **changed}.items() if each is not None}
    with pytest.raises(BadWorkloadError, match=words):
        taken(write(tmp_path / "w.safetensors", tensors), tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "1.safetensors", WHOLE)
    write(tmp_path / "2.safetensors", {"count": WHOLE["count"]})
    with pytest.raises(BadWorkloadError, match=r"'count' is in .*1.safetensors and in .*2"):
        taken(tmp_path, tmp_path)


def test_a_byte_that_is_no_bool_a_pickle_and_a_pipe_are_refused(tmp_path: pathlib.Path) -> None:
    model = nn.Module()
    model.register_buffer("mask", torch.zeros(2, dtype=torch.bool))
    file = write(tmp_path / "w.safetensors", {"mask": torch.tensor([True, False])})
    file.write_bytes(file.read_bytes()[:-1] + b"\x02")
    with pytest.raises(BadWorkloadError, match="no BOOL"):
        take_weights(Workload(model), str(file), (str(tmp_path),))
    torch.save({"mask": torch.ones(2)}, file)
    with pytest.raises(BadWorkloadError, match="header would have"):
        take_weights(Workload(model), str(file), (str(tmp_path),))
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(BadWorkloadError, match="no file or folder"):
        take_weights(Workload(model), str(file), (str(tmp_path),))
    with pytest.raises(BadWorkloadError, match="no regular file"):
        take_weights(Workload(model), str(tmp_path), (str(tmp_path),))
    file.unlink()
    file.mkdir()
    with pytest.raises(BadWorkloadError, match="no regular file"):
        take_weights(Workload(model), str(tmp_path), (str(tmp_path),))


def test_only_a_module_takes_weights(tmp_path: pathlib.Path) -> None:
    with pytest.raises(BadWorkloadError, match="weights are a module's"):
        take_weights(Workload(lambda: None), str(tmp_path), (str(tmp_path),))
