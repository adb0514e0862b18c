"""What holds for every test: programs can be interrupted, and cycles are those of its own module.

PyTorch and transformers are 400,000 objects and more. A step of ours collects cycles, and each time
they were looked through, which took a fifth of a second: most of the time of a small step.
"""

import gc
import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def an_interrupt_is_not_ignored() -> None:
    """Give programs that tests start an interrupt to hear: a shell's background jobs have none."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def what_is_loaded_is_not_collected() -> None:
    """Leave out what stands at the beginning of a module; its cycles go before."""
    gc.collect()
    gc.freeze()
