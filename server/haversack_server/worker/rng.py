"""Random generators: one seed for all of them, and digests of their states.

Default generators only; those that a workload holds are found by ``state``. Reads states, never
draws.
"""

import random
import zlib
from typing import Any

import numpy
import torch

PYTHON = "python"
NUMPY = "numpy"
TORCH_CPU = "torch cpu"
_OF_NUMPY = (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)
_HELD = (torch.Generator, random.Random, *_OF_NUMPY)


def seed_everything(seed: int) -> None:
    """Seed torch on every device, python and numpy."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def default_states() -> dict[str, str]:
    """Digest the state of every default generator, by the name of its source."""
    return {source: digest(content) for source, content in default_contents().items()}


def default_contents() -> dict[str, bytes]:
    """Give the whole state of every default generator, by the name of its source."""
    states = {
        PYTHON: repr(random.getstate()).encode(),
        NUMPY: repr(_words_of(numpy.random.get_state(legacy=False))).encode(),
        TORCH_CPU: torch.default_generator.get_state().numpy().tobytes(),
    }
    return states | _device_contents()


def _device_contents() -> dict[str, bytes]:
    """Give the states of every device of the accelerator, if this process has one and used it."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return {}
    module: Any = torch.get_device_module(accelerator)
    # Reading a state would open a context. Apple's has no such question, and nothing is read there.
    if not getattr(module, "is_initialized", lambda: False)():
        return {}
    return {
        f"torch {accelerator.type}:{index}": module.get_rng_state(index).cpu().numpy().tobytes()
        for index in range(module.device_count())
    }


def is_generator(thing: Any) -> bool:
    """Whether an object draws random numbers from a state that can be read."""
    return isinstance(thing, _HELD) and not isinstance(thing, random.SystemRandom)


def held_state(thing: Any) -> str | None:
    """Digest the state of a generator object; None if it is none."""
    if not is_generator(thing):
        return None
    if isinstance(thing, torch.Generator):
        return generator_state(thing)
    if isinstance(thing, random.Random):
        return digest(repr(thing.getstate()).encode())
    if isinstance(thing, numpy.random.Generator):
        thing = thing.bit_generator
    if isinstance(thing, numpy.random.BitGenerator):
        return digest(repr(thing.state).encode())
    return digest(repr(_words_of(thing.get_state(legacy=False))).encode())


def generator_state(generator: torch.Generator) -> str:
    """Digest the state of one of torch's generators."""
    return digest(generator.get_state().numpy().tobytes())


def digest(content: bytes | memoryview) -> str:
    """Give a short digest of bytes; equal bytes have equal digests."""
    return f"{zlib.crc32(content):08x}"


def _words_of(state: Any) -> Any:
    # The words as bytes: the repr of a long array leaves most of it out.
    words = state["state"]
    return words["key"].tobytes(), words["pos"], state["has_gauss"], state["gauss"]
