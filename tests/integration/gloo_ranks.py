"""Real ranks of gloo: programs of the tests, started side by side, and what each of them does.

A program is a file of this folder that ends with ``be_rank``, and runs as
``PROGRAM RANK RANKS FILE``, with whatever else it takes.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch.distributed as dist
from torch import Tensor, nn

WIDTH = 8
_HERE = Path(__file__).parent
_LONGEST_S = 180


def run_ranks(program: str, count: int, folder: Path, *others: str) -> list[tuple[str, str]]:
    """Run a program on so many ranks; gives what each printed, and what it printed as errors.

    None of them is left behind, whatever the caller then finds wrong.
    """
    path = os.pathsep.join(str(_HERE.parents[1] / each) for each in ("client", "server", "."))
    common = [str(count), str(folder / "gloo"), *others]
    with ExitStack() as ending:
        ranks = []
        for rank in range(count):
            started = subprocess.Popen(
                [sys.executable, str(_HERE / program), str(rank), *common],
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            ranks.append(ending.enter_context(started))
            ending.callback(started.kill)  # before it is waited for
        return [each.communicate(timeout=_LONGEST_S) for each in ranks]


def be_rank(work: Callable[..., object]) -> None:
    """Do the work of one rank, with the other arguments of the program; print what it gives."""
    rank, count, file, *others = sys.argv[1:]
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=int(rank), world_size=int(count)
    )
    print(work(*others))
    dist.destroy_process_group()
    sys.stdout.flush()
    # gloo's threads may still hold tensors, and to drop one while Python ends aborts the process
    os._exit(0)


class Dropping(nn.Module):
    """Blocks with dropout."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.3), nn.Linear(WIDTH, WIDTH)
            )
            for _ in range(blocks)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Run the blocks in turn."""
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden
