"""What PyTorch counts over a whole process, and marks for itself, is no state of a model."""

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.worker.state import snapshot  # noqa: E402


def do_nothing(*args: object) -> None:
    """Stand for a hook."""


def test_a_hook_that_is_put_on_again_is_no_other() -> None:
    model = torch.nn.Linear(2, 2)
    handle = model.register_forward_hook(do_nothing, with_kwargs=True)
    first = snapshot({"model": model}).values
    handle.remove()
    handle = model.register_forward_hook(do_nothing, with_kwargs=True)
    assert snapshot({"model": model}).values == first
    model.register_forward_hook(do_nothing)
    assert snapshot({"model": model}).values != first


def test_marks_of_compiling_on_a_tensor_are_no_state() -> None:
    tensor = torch.ones(2)
    first = snapshot({"tensor": tensor}).values
    tensor._dynamo_static_input_type = "unguarded"
    assert snapshot({"tensor": tensor}).values == first
    tensor.own = 1
    assert snapshot({"tensor": tensor}).values != first
