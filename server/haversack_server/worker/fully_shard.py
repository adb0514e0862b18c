"""Runs a described model under ``fully_shard`` (or FSDP1) and PyTorch's tracker, on the CPU.

One rank of any world, on the fake process group: collectives move nothing, and every buffer is
made. Real CPU tensors, or fake ones (``fake_tensors``) for a large model. Two steps are run, and
the highest bytes of each phase are read off the tracker. Counts what the tracker does: storages, to
the byte.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from haversack.torch.sharding import absent_ranks
from haversack_server.estimate.trace import TraceFound, TraceOrder
from haversack_server.worker.fake_tensors import fake_tensors
from haversack_server.worker.flat_shard import FlatTracker, wrap_flat

_CPU = torch.device("cpu")
_TYPES = {2: torch.bfloat16, 4: torch.float32}


def trace(order: TraceOrder) -> TraceFound:
    """Take two steps; raises whatever building or running the model raises."""
    import transformers

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tensors = fake_tensors() if order.fake else nullcontext()
    with _fake_ranks(order) as mesh, tensors:
        model: Any = _model(order, transformers)
        units = _units(model, order)
        if order.flat:
            model = wrap_flat(model, units, order, _types(order))
        else:
            _shard(model, units, mesh, order)
        # DTensor keeps what it learns of each operation; a first run would count that too.
        if order.fake:
            _optimizer_alone(model, order)
        else:
            _steps(model, order)
        found = _steps(model, order)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return TraceFound(names=tuple(found), sizes=tuple(found.values()), versions=versions)


@contextmanager
def _fake_ranks(order: TraceOrder) -> Iterator[DeviceMesh]:
    """Be rank 0 of a world that is not there."""
    world = order.shards * order.replicas
    with absent_ranks(world):
        if order.replicas > 1:
            axes = ("replicate", "shard")
            yield init_device_mesh("cpu", (order.replicas, order.shards), mesh_dim_names=axes)
        else:
            yield init_device_mesh("cpu", (world,))


def _model(order: TraceOrder, transformers: Any) -> nn.Module:
    config = json.loads(order.config_json)
    settings = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    settings._attn_implementation = order.attention
    settings.use_cache = False
    dtype = _TYPES[order.parameter_bytes]
    model: Any = transformers.AutoModelForCausalLM.from_config(settings, dtype=dtype)
    if order.recompute:
        enable = getattr(model, "activation_checkpointing_enable", None)  # the name since 5.x
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
    trained: nn.Module = model.train()
    return trained


def _units(model: Any, order: TraceOrder) -> list[nn.Module]:
    """List layers, and embedding and head where they are units of their own."""
    units: list[nn.Module] = list(_layers(model))
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if order.wraps_layers_only or embedding.weight is head.weight:
        return units
    return [embedding, *units, head]


def _types(order: TraceOrder) -> tuple[torch.dtype | None, torch.dtype | None]:
    """Give the types of parameters in use and of reductions, where they are others."""
    return (
        _type_or_none(order.compute_bytes, order.parameter_bytes),
        _type_or_none(order.reduce_bytes, order.compute_bytes),
    )


def _shard(model: Any, units: list[nn.Module], mesh: DeviceMesh, order: TraceOrder) -> None:
    """Wrap the units, then the root around them."""
    parameters, reductions = _types(order)
    policy = MixedPrecisionPolicy(param_dtype=parameters, reduce_dtype=reductions)
    reshard: bool | int = order.reshard_ranks or order.reshard_after_forward
    for unit in units:
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    depth = order.prefetch_units
    sharded: list[Any] = units
    for index, unit in enumerate(sharded) if depth else ():
        unit.set_modules_to_forward_prefetch(units[index + 1 : index + 1 + depth])
        unit.set_modules_to_backward_prefetch(units[max(0, index - depth) : index][::-1])


def _type_or_none(wanted: int, given: int) -> torch.dtype | None:
    return _TYPES[wanted] if wanted != given else None


def _layers(model: nn.Module) -> nn.ModuleList:
    """Find the stack of layers: the longest list of modules."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len)


def _optimizer(model: nn.Module, order: TraceOrder) -> torch.optim.Optimizer:
    fused = order.optimizer_kernel == "fused"
    foreach = order.optimizer_kernel == "foreach"
    kernel: dict[str, Any] = {"fused": True} if fused else {"foreach": foreach}
    if order.optimizer.startswith("adamw"):
        return torch.optim.AdamW(model.parameters(), **kernel)
    momentum = 0.9 if order.optimizer == "sgd_momentum" else 0.0
    # DTensor has no rule for fused SGD; neither kernel makes temporaries.
    plain = kernel if not fused else {"foreach": True}
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, **plain)


def _optimizer_alone(model: nn.Module, order: TraceOrder) -> None:
    """Take one optimizer step, the only part of a step that runs on DTensors."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = _optimizer(model, order)
    optimizer.step()
    optimizer.zero_grad()


def _steps(model: Any, order: TraceOrder) -> dict[str, int]:
    """Take two steps under the tracker; give the highest bytes of each phase."""
    optimizer = _optimizer(model, order)
    tokens = torch.zeros(order.microbatch, order.seq, dtype=torch.long)
    tracker: Any = (FlatTracker if order.flat else FSDPMemTracker)(model, optimizer)
    tracker.track_inputs((tokens,))
    found: dict[str, int] = {}
    with tracker:
        for step in (1, 2):
            _restart(tracker)
            output = model(input_ids=tokens, labels=tokens)
            found[f"step {step} forward"] = _highest(tracker)
            output.loss.backward()
            found[f"step {step} backward"] = _highest(tracker)
            optimizer.step()
            found[f"step {step} optimizer"] = _highest(tracker)
            del output
            optimizer.zero_grad()
            tracker.reset_mod_stats()
    return found


def _highest(tracker: Any) -> int:
    """Read the peak since the last reading, and begin again."""
    peak = int(tracker._peak_mem.get(_CPU, 0))
    _restart(tracker)
    return peak


def _restart(tracker: Any) -> None:
    now = tracker.get_tracker_snapshot().get(_CPU, {})
    tracker._peak_mem[_CPU] = now.get("Total", 0)
    tracker._peak_mem_snap[_CPU] = now
