"""The planner against its gates: ``python -m tests.bench.plan [--only ...] [--write PAGE]``.

Plans are executed: peaks by a tracker of live storages and by the CPU's allocator, gradients bit by
bit. Other ways to choose are executed in the same run. Needs torch, transformers and ortools.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import transformers
from tests.bench import machine, plan_cases, plan_min_cut, plan_optimality, plan_peers
from tests.bench.report import as_markdown, figures, options, told
from tests.bench.table import Row, at_most

from haversack.torch import Workload, profile

INTRO = (
    "By `python -m tests.bench.plan --write docs/benchmarks/plan.md`, unedited.",
    "",
    "Small models in fp32 on a CPU, without optimizer states, so that activations are most of the",
    "peak. Budgets lie between the floor of the option set and the peak with everything saved.",
    "The reserve for the allocator is what it took beside live storages in the plain step and in",
    "the plan of the least peak. Extra times are a roofline's, of operations one by one. Peers",
    "are compared at the peak that they were executed with. min-cut: torch's partitioner with",
    "activation_memory_budget, unfused, each against its own base, and ours at the share of the",
    "peak that torch reached when it was asked for this one. Not compared here: wall time.",
)
PEERED = ("gpt2 12 layers, tied", "llama 8 layers", "bert 6 layers, dropout", "resnet 16 blocks")


def executed() -> Iterator[Row]:
    """Execute every case."""
    found = []
    for subject in plan_cases.subjects():
        start = time.monotonic()
        own = list(plan_cases.cases_of(subject))
        found += own
        print(f"  {subject.name}: {len(own)} cases, {time.monotonic() - start:.0f} s", flush=True)
    yield from plan_cases.rows(found)


def peers() -> Iterator[Row]:
    """Execute other ways to choose."""
    for subject in plan_cases.subjects(PEERED):
        yield from plan_peers.rows(subject)


def min_cut() -> Iterator[Row]:
    """Execute what torch's partitioner makes of budgets."""
    for name in PEERED:
        yield from plan_min_cut.rows(name)


def profiles() -> Iterator[Row]:
    """Profile the shapes of Llama 3, 8B and 70B, with fake weights."""
    small, large = _seconds(4096, 14336, 32), _seconds(8192, 28672, 80)
    yield Row("profiles", "Llama 3 8B shape, T=8192", small, "s")
    yield Row("profiles", "Llama 3 70B shape, T=8192", large, "s")
    yield at_most("profiles", "70B / 8B", large / small, 1.3)


def _seconds(hidden: int, inner: int, layers: int) -> float:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    config = transformers.LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 128,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=8192,
        use_cache=False,
        dtype=torch.bfloat16,
    )
    torch.set_default_dtype(torch.bfloat16)
    with FakeTensorMode():
        model = transformers.LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    tokens = torch.zeros(1, 8192, dtype=torch.long)
    workload = Workload(model, kwargs={"input_ids": tokens, "labels": tokens})
    start = time.thread_time()
    profile(workload)
    return time.thread_time() - start


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "optimality": plan_optimality.rows,
    "executed": executed,
    "peers": peers,
    "min-cut": min_cut,
    "profiles": profiles,
}


def main() -> None:
    """Print the machine and every figure; write the page if asked."""
    arguments = options(__doc__, SECTIONS).parse_args()
    warnings.filterwarnings("ignore")
    logging: Any = transformers.logging
    logging.set_verbosity_error()
    described = machine.describe()
    rows = told(described, figures(SECTIONS, arguments.only), as_json=arguments.json)
    if arguments.write:
        arguments.write.write_text(as_markdown("Plan", INTRO, described, rows))


if __name__ == "__main__":
    main()
