"""The constants of a framework and its kernels: what each operation keeps, with a source for each.

A profile is package data, ``profiles/NAME.json``: a list of constants, each with its value, unit,
source and how sure it is: measured, read, derived, fitted (to the rows that its source names) or
assumed. A profile may be ``based_on`` another and state only what differs. Knows nothing of
architectures or of how the constants are used.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from haversack.errors import InvalidRequestError

FIELD = "kernel_profile"
DEFAULT = "hf-eager"
PACKAGE = "haversack_server.memory"


class RmsNormKernel(StrEnum):
    """Which RMSNorm runs: a chain of Python operations, PyTorch's composite, or a fused kernel."""

    PYTHON = "python"
    COMPOSITE = "composite"
    FUSED = "fused"


class EagerMask(StrEnum):
    """How eager attention applies its causal mask: added to the scores, or filled where true."""

    ADDITIVE = "additive"
    FILL = "fill"


class SelectivePolicy(StrEnum):
    """What selective recomputation of a layer runs again."""

    CORE_ATTENTION = "core_attention"
    EVERY_SECOND_PRODUCT = "every_second_product"


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant as the profile states it, and how sure it is."""

    value: Any
    unit: str
    source: str
    how_sure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """The constants by name; ``constants`` has unit and source of each, under the same name.

    None stands for the width of the compute dtype.
    """

    name: str
    title: str
    rms_norm: RmsNormKernel
    layer_norm_statistic_bytes: int | None
    dropout_mask_bytes: int | None
    flash_logsumexp_bytes: int
    flash_repeats_kv: bool
    sdpa_repeats_kv: bool
    sdpa_repeats_kv_under_mask: bool
    joins_projections: bool
    flash_transposes_result: bool
    eager_mask: EagerMask
    eager_mask_bytes: int
    eager_softmax_upcast: bool
    softmax_multiplies_first: bool
    eager_scales_scores: bool
    eager_copies_operands: bool
    wide_groups_in_parts: bool
    autocast_widens: bool
    gated_activation_fused: bool
    quantized_keeps_input: bool
    dequantized_copies: int
    graph_outlives_backward: bool
    latent_on_shards: bool
    experts_weighed_inside: bool
    selective_policy: SelectivePolicy
    embedding_parts_held: bool
    loader_mask_bytes: int
    gradients_persist: bool
    sequence_parallel_keeps_gathered: bool
    tensor_parallel_splits_logits: bool
    loss: str
    logit_upcast_bytes: int
    logit_saved_bytes: int
    logit_gradient_bytes: int
    split_logit_scratch_bytes: int
    logits_held_by_caller: bool
    logits_returned_in_fp32: bool
    pipeline_frees_outputs: bool
    pipeline_receives_ahead: bool
    pipeline_parked_tensors: int
    pipeline_parked_tensors_interleaved: int
    reserved_over_allocated_permille: int
    reserved_over_allocated_high_permille: int
    cuda_context_bytes: int
    communicator_bytes: int
    workspace_bytes: int
    workspace_hopper_bytes: int
    grouped_workspace_bytes: int
    grouped_workspace_hopper_bytes: int
    margin_low_permille: int
    margin_high_permille: int
    constants: Mapping[str, Constant] = field(default_factory=dict, compare=False, repr=False)

    def constant(self, name: str) -> Constant:
        """Return one constant with its unit and source, for the ledger's ``source``."""
        return self.constants[name]


_ENUMS: Mapping[str, type[StrEnum]] = MappingProxyType(
    {
        "rms_norm": RmsNormKernel,
        "eager_mask": EagerMask,
        "selective_policy": SelectivePolicy,
    }
)


@cache
def names() -> tuple[str, ...]:
    """Return the names of the profiles that ship with the package."""
    folder = files(PACKAGE) / "profiles"
    return tuple(
        sorted(row.name.removesuffix(".json") for row in folder.iterdir() if row.name[0] != ".")
    )


@cache
def load(name: str) -> KernelProfile:
    """Load one profile; an unknown name is an InvalidRequestError that lists the known ones."""
    if name not in names():
        raise InvalidRequestError(
            f"kernel_profile {name!r} is not known; use one of {', '.join(names())}", field=FIELD
        )
    title, constants = _read(name)
    values: dict[str, Any] = {
        key: _ENUMS[key](row.value) if key in _ENUMS else row.value
        for key, row in constants.items()
    }
    return KernelProfile(name=name, title=title, constants=constants, **values)


def _read(name: str) -> tuple[str, Mapping[str, Constant]]:
    """Read a profile's title and its constants, those of the profile it is based on included."""
    text = (files(PACKAGE) / "profiles" / f"{name}.json").read_text(encoding="utf-8")
    document = json.loads(text)
    merged: dict[str, Constant] = {}
    if "based_on" in document:
        merged.update(_read(document["based_on"])[1])
    merged.update({key: Constant(**row) for key, row in document["constants"].items()})
    known = {row.name for row in fields(KernelProfile)} - {"name", "title", "constants"}
    if merged.keys() != known:
        raise ValueError(f"profile {name}: {sorted(merged.keys() ^ known)} missing or unknown")
    return document["title"], MappingProxyType(merged)
