"""Settings that decide the memory of a run and that the memory model does not know yet.

An answer to them would be false, so there is none: the verdict is UNKNOWN, and says why.
"""

from collections.abc import Mapping

from haversack.parallelism import Sharding
from haversack.run import Attention, TrainingRun
from haversack_server.memory.autocast_limits import (
    is_autocast,
    unmodelled_family,
    unmodelled_under_autocast,
)
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.finetuned import keeps_inputs, unmodelled_finetuning
from haversack_server.memory.fp8 import unmodelled_fp8
from haversack_server.memory.inputs.model import read_model
from haversack_server.memory.kernel_profile import DEFAULT, KernelProfile, load
from haversack_server.memory.moved_activations import unmodelled_moves
from haversack_server.memory.optimizers.unmodelled import unmodelled_optimizer
from haversack_server.memory.traits import Router

_STATES_ONLY = {
    "pp": "a subject without layers does not say what each stage holds",
    "ep": "a subject without layers does not say which parameters are experts",
}


def unmodelled(run: TrainingRun, degrees: Degrees) -> tuple[str, ...]:
    """Name the axes and settings in use that are not modelled yet; none, if () is given."""
    axes = [
        f"{axis}={getattr(degrees, axis)}: {meaning}"
        for axis, meaning in _STATES_ONLY.items()
        if getattr(degrees, axis) > 1 and not run.subjects()["documents"]
    ]
    settings = {
        **_settings(run, degrees),
        **unmodelled_optimizer(run, degrees),
        **unmodelled_under_autocast(run, degrees),
        **unmodelled_fp8(run),
        **unmodelled_moves(run),
        **_of_model(run, degrees),
    }
    return (*axes, *_named(settings, "not modelled yet"))


def unplanned(run: TrainingRun, degrees: Degrees) -> tuple[str, ...]:
    """Name what Estimate answers and Plan does not plan for yet, after what is unmodelled.

    A plan is fitted to a high end; that of experts without a stated load is the worst routing.
    """
    parallelism = run.parallelism
    in_use = {
        "autocast": is_autocast(run, degrees),
        "offload_modules": bool(run.training.offload_modules),
        "attention=unknown": run.training.attention is Attention.UNKNOWN,
        "quantized weights under this kernel profile": keeps_inputs(run.training, _profile(run)),
        f"ep={degrees.ep} without expert_load_permille": degrees.ep > 1
        and not (parallelism.expert_load_permille or parallelism.expert_capacity_permille),
    }
    return (*unmodelled(run, degrees), *_named(in_use, "not planned for yet"))


def _settings(run: TrainingRun, degrees: Degrees) -> Mapping[str, bool]:
    parallelism, training = run.parallelism, run.training
    return {
        "limit_all_gathers=false": parallelism.limit_all_gathers is False
        and degrees.sharding is Sharding.FSDP1,
        "forward_prefetch": bool(parallelism.forward_prefetch)
        and degrees.sharding is Sharding.FSDP1,
        # DeepSpeed refuses no_sync from stage 2 on, where gradients are divided as they are made.
        "no_sync": bool(training.no_sync)
        and degrees.sharding in (Sharding.ZERO_2, Sharding.ZERO_3)
        and degrees.shard_ranks > 1,
    }


def _of_model(run: TrainingRun, degrees: Degrees) -> Mapping[str, bool]:
    """Name what is not known of some models only; the others are not even read for it."""
    alone = degrees.pp == degrees.cp == degrees.ep == 1 and run.training.finetuning is None
    autocast = is_autocast(run, degrees)
    if not run.subjects()["documents"] or (alone and not autocast):
        return {}
    model = read_model(run).architecture
    two_stacks = model.encoder_layers > 0
    return {
        **(unmodelled_family(model) if autocast else {}),
        **unmodelled_finetuning(run.training, model, degrees, _profile(run)),
        f"pp={degrees.pp} of an encoder and a decoder": two_stacks and degrees.pp > 1,
        f"cp={degrees.cp} of an encoder and a decoder": two_stacks and degrees.cp > 1,
        f"cp={degrees.cp} of attention with linear biases": model.alibi and degrees.cp > 1,
        f"ep={degrees.ep} of experts that all run on every token": degrees.ep > 1
        and model.routing.router is Router.DENSE,
    }


def _profile(run: TrainingRun) -> KernelProfile:
    return load(run.kernel_profile or DEFAULT)


def _named(in_use: Mapping[str, bool], why: str) -> tuple[str, ...]:
    return tuple(f"{setting}: {why}" for setting, used in in_use.items() if used)
