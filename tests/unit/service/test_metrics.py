import pytest

from haversack_kernels import cache
from haversack_server.service.metrics import Metrics


def test_the_time_of_compiling_is_looked_at_when_metrics_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Metrics().registry
    for seconds in (0.0, 9.5):
        monkeypatch.setattr(cache._clock, "seconds", seconds)
        assert registry.get_sample_value("haversack_compile_seconds") == seconds
