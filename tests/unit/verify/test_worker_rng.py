"""Whose random states are read: an accelerator's, through its own module, if it was used."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.worker import rng  # noqa: E402

OF_THE_HOST = {rng.PYTHON, rng.NUMPY, rng.TORCH_CPU}
STATE = torch.tensor([1, 2], dtype=torch.uint8)
USED = {"device_count": lambda: 2, "get_rng_state": lambda index: STATE + index}


@pytest.mark.parametrize(
    ("module", "devices"),
    [
        (SimpleNamespace(is_initialized=lambda: True, **USED), {"torch mps:0", "torch mps:1"}),
        (SimpleNamespace(is_initialized=lambda: False, **USED), set()),
        (SimpleNamespace(), set()),  # as Apple's, which does not say
    ],
)
def test_an_accelerator_that_was_not_used_is_left_alone(
    module: SimpleNamespace, devices: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    found = rng.default_contents()
    assert found.keys() == OF_THE_HOST | devices
    assert len(set(found.values())) == len(found)
