"""The Workload that factories return, and what it refuses."""

import subprocess
import sys
from typing import Any

import pytest

from haversack.errors import InvalidRequestError
from haversack.torch import Workload


def test_a_model_alone_will_do_and_lists_become_tuples() -> None:
    workload = Workload(abs, [1], regions=["a"])  # type: ignore[arg-type]
    assert workload.args == (1,)
    assert workload.regions == ("a",)
    assert workload.kwargs == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", 3),
        ("args", 3),
        ("kwargs", [1]),
        ("kwargs", {1: 2}),
        ("loss", "mse"),
        ("regions", "layers.0"),
        ("regions", [1]),
        ("optimizer", "sgd"),
        ("between_forward_and_backward", 1),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_field(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"model": abs, field: value}
    with pytest.raises(InvalidRequestError) as refusal:
        Workload(**fields)
    assert refusal.value.field == field


def test_importing_the_name_loads_no_torch() -> None:
    code = "import sys; from haversack.torch import Workload; print('torch' in sys.modules)"
    path = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=path)
    assert ran.stdout == "False\n", ran.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    import haversack.torch

    with pytest.raises(AttributeError, match="no attribute 'Job'"):
        haversack.torch.Job  # noqa: B018 - the access is what is tested
