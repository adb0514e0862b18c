"""Training checkpoints on disk, by torch.distributed.checkpoint: written, and read back in place.

DCP unpickles what it reads: its own index (``.metadata``), and everything that is no tensor. So a
folder is read only by the job that wrote it, in the job's own scratch folder.
"""

import contextlib
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from haversack.verify import Facet

State = dict[str, Any]
# As TrainingRun.state_dict has them; parameters and buffers share one.
_KEYS = {
    Facet.RNG: "rng",
    Facet.OPTIMIZER_STATE: "optimizer",
    Facet.SCHEDULE: "scheduler",
    Facet.SAMPLER_POSITION: "data",
    Facet.EXTRA_STATE: "extras",
}
KINDS = (Facet.PARAMETERS, Facet.BUFFERS, *_KEYS)


def write(state: State, folder: pathlib.Path) -> None:
    """Write a state; every rank must take part."""
    with _own_errors():
        save(state, storage_writer=FileSystemWriter(folder))


def read(state: State, folder: pathlib.Path) -> tuple[str, ...]:
    """Read into a state what it asks for; every rank must take part.

    What the files do not hold is taken out of the state, and its names are given: where all of a
    mapping is not there, the mapping's alone.
    """
    held = names_in(folder)
    missing = tuple(_without(state, held, ""))
    with _own_errors():
        load(state, storage_reader=FileSystemReader(folder))
    return missing


@contextlib.contextmanager
def _own_errors() -> Iterator[None]:
    """Raise what a rank raised, in place of DCP's count of such ranks, which says not what."""
    try:
        yield
    except CheckpointException as counted:
        for error, _ in counted.failures.values():
            raise error from counted
        raise


def leave_out(state: State, kind: Facet | None, model: nn.Module) -> bool:
    """Take a kind of state out of what was read; true where there was some of it."""
    if kind is None:
        return False
    if kind in _KEYS:
        return state.pop(_KEYS[kind], None) is not None
    named = model.named_parameters() if kind is Facet.PARAMETERS else model.named_buffers()
    names = {name for name, _ in named}
    read = state.get("model")
    if not isinstance(read, Mapping) or not names & read.keys():
        return False
    state["model"] = {name: each for name, each in read.items() if name not in names}
    return True


def kinds_in(kept: Collection[str], model: nn.Module) -> tuple[Facet, ...]:
    """Name the kinds that can be left out of files, by the first parts of the names they hold."""
    found = [kind for kind, key in _KEYS.items() if key in kept]
    if "model" in kept:
        named = {Facet.PARAMETERS: model.named_parameters(), Facet.BUFFERS: model.named_buffers()}
        found += [kind for kind, each in named.items() if next(each, None) is not None]
    return tuple(kind for kind in KINDS if kind in found)


def names_in(folder: pathlib.Path) -> tuple[str, ...]:
    """Name everything that files hold, with dots between the parts of a name."""
    return tuple(FileSystemReader(folder).read_metadata().state_dict_metadata)


def bytes_of(folder: pathlib.Path) -> int:
    """Count the bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _without(state: State, held: Collection[str], prefix: str) -> Iterator[str]:
    """Take out what is not held; give the names, the outermost ones."""
    for key in list(state):
        name, value = f"{prefix}{key}", state[key]
        if isinstance(value, Mapping):
            if not value:  # nothing is written of it, and nothing is lost
                continue
            inner = dict(value)
            lost = tuple(_without(inner, held, f"{name}."))
            if inner:
                state[key] = inner if lost else value
                yield from lost
                continue
        elif _is_held(name, held):
            continue
        del state[key]
        yield name


def _is_held(name: str, held: Collection[str]) -> bool:
    # A list with tensors in it is written item by item.
    return name in held or any(each.startswith(f"{name}.") for each in held)
