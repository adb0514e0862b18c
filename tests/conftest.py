"""What holds for every test: a collection of cycles looks at what its own module has made.

PyTorch and transformers are 400,000 objects and more. A step of ours collects cycles, and each time
they were looked through, which took a fifth of a second: most of the time of a small step.
"""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def what_is_loaded_is_not_collected() -> None:
    """Leave out what stands at the beginning of a module; its cycles go before."""
    gc.collect()
    gc.freeze()
