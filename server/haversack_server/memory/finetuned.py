"""A run in which most weights are frozen: from the request's words to a tuned architecture.

The one place where defaults of finetuning are filled in; each becomes an assumption of the answer.
"""

from collections.abc import Mapping
from dataclasses import replace

from haversack.finetuning import Finetuning, Quantizer, StoredWeights
from haversack.run import Precision, Recompute, Training
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.recipe import Recipe
from haversack_server.memory.tuning import Stored, Tuning
from haversack_server.memory.weights import tuned

FLOAT_BYTES = 4
_DEFAULT_TARGETS = ("query", "value")
NOT_QUANTIZED_HERE = (
    "finetuning.quantized_by is not given: what quantizing weights takes while the model is loaded "
    "is not counted; an early torchao took 68 bytes for each element of the largest"
)
_STORED = {
    StoredWeights.UNSPECIFIED: Stored.COMPUTE,
    StoredWeights.COMPUTE: Stored.COMPUTE,
    StoredWeights.NF4: Stored.NF4,
    StoredWeights.NF4_DOUBLE: Stored.NF4_DOUBLE,
    StoredWeights.INT8: Stored.INT8,
}


def numbers_of(training: Training) -> tuple[Training, tuple[str, ...]]:
    """Take a precision for what trains: frameworks keep no fp32 master copy of adapters."""
    if training.finetuning is None or training.precision is not Precision.UNSPECIFIED:
        return training, ()
    sentence = "precision: BF16, what trains is in bf16 with its gradients and optimizer state"
    return replace(training, precision=Precision.BF16), (sentence,)


def with_wide_adapters(recipe: Recipe, training: Training) -> Recipe:
    """Adapters in fp32 have gradients and moments in fp32, and no master copy."""
    given = training.finetuning
    if given is None or given.rank is None or not given.adapter_in_fp32:
        return recipe
    moments = None
    if recipe.moments is not None:
        moments = recipe.moments // recipe.moment * FLOAT_BYTES
    states = f"state of {recipe.optimizer.name}" if moments is None else str(moments)
    return replace(
        recipe,
        parameter=FLOAT_BYTES,
        gradient=FLOAT_BYTES,
        master=0,
        moment=FLOAT_BYTES,
        moments=moments,
        formula=f"{FLOAT_BYTES} + {FLOAT_BYTES} + {states}",
        source="PEFT casts adapters of bf16 and fp16 models to fp32 (autocast_adapter_dtype)",
    )


def tuning_of(given: Finetuning, compute_bytes: int, profile: KernelProfile) -> Tuning:
    """Fill in what the request leaves unsaid."""
    targets = given.targets or _DEFAULT_TARGETS
    return Tuning(
        targets=frozenset(targets if given.rank else ()),
        rank=given.rank or 0,
        dropout=given.adapter_dropout or 0.0,
        adapter_bytes=FLOAT_BYTES if given.adapter_in_fp32 else compute_bytes,
        stored=stored_of(given),
        head_quantized=bool(given.head_quantized),
        embedding_trains="embedding" in given.trained_parts,
        head_trains="head" in given.trained_parts,
        norms_train="norms" in given.trained_parts,
        keeps_inputs=profile.quantized_keeps_input,
        dequantized_copies=profile.dequantized_copies,
    )


def stored_of(given: Finetuning) -> Stored:
    """Say how frozen weights are stored; an early torchao kept more of its constants."""
    if given.quantized_by is Quantizer.TORCHTUNE_2024_04:
        return Stored.NF4_WHOLE_FACTORS
    return _STORED[given.frozen_weights]


def finetuned(
    model: Architecture, training: Training, compute_bytes: int, profile: KernelProfile
) -> tuple[Architecture, tuple[str, ...]]:
    """Freeze the model's weights as the request says; with what was assumed."""
    given = training.finetuning
    if given is None:
        return model, ()
    assumptions = ["every other weight is frozen; a gradient still flows through all layers"]
    if given.rank and not given.targets:
        assumptions.append("targets: query and value, PEFT's default for most models")
    tuning = tuning_of(given, compute_bytes, profile)
    if tuning.stored is not Stored.COMPUTE and not given.quantized_by:
        assumptions.append(NOT_QUANTIZED_HERE)
    return tuned(model, tuning, compute_bytes), tuple(assumptions)


def keeps_inputs(training: Training, profile: KernelProfile) -> bool:
    """Tell whether quantized products keep their inputs where no checkpoint drops them."""
    given = training.finetuning
    stored = Stored.COMPUTE if given is None else _STORED[given.frozen_weights]
    return profile.quantized_keeps_input and stored is not Stored.COMPUTE


def unmodelled_finetuning(
    training: Training, model: Architecture, degrees: Degrees, profile: KernelProfile
) -> Mapping[str, bool]:
    """Name settings of a finetuning run that are not known.

    What a quantized product keeps in an attribute, no checkpoint drops.
    """
    given = training.finetuning
    if given is None:
        return {}
    quantized = _STORED[given.frozen_weights] is not Stored.COMPUTE
    recomputes = training.recompute not in (Recompute.UNSPECIFIED, Recompute.NONE)
    return {
        f"recomputation of quantized weights under {profile.name}": keeps_inputs(training, profile)
        and (recomputes or bool(training.actions)),
        "finetuning.frozen_weights of sharded units": quantized and degrees.shards_parameters,
        "finetuning.rank with latent attention": bool(given.rank) and model.latent is not None,
        "finetuning.rank with an encoder and a decoder": bool(given.rank)
        and model.encoder_layers > 0,
        "finetuning.trained_parts with a tied head": "head" in given.trained_parts and model.tied,
        **_unmodelled_loading(training, given, model, degrees),
    }


def _unmodelled_loading(
    training: Training, given: Finetuning, model: Architecture, degrees: Degrees
) -> Mapping[str, bool]:
    """Name what torchtune did not load in this way, or what was not read."""
    return {
        f"finetuning.quantized_by {what}": bool(given.quantized_by) and so
        for what, so in {
            "on several ranks": degrees.world_size > 1,
            "with another precision than BF16": training.precision
            not in (Precision.UNSPECIFIED, Precision.BF16),
            "with a quantized head": bool(given.head_quantized),
            "with experts": model.experts > 0,
            "with an encoder and a decoder": model.encoder_layers > 0,
        }.items()
    }
