"""What tests on real layers and models of PyTorch share."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def one_torch_thread() -> Iterator[None]:
    """Run on one thread, so that nothing is split in a way of the machine's, and from one seed."""
    torch = pytest.importorskip("torch", reason="the real layers need torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
