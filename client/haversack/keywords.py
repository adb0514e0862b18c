"""The keywords of requests, once: for the clients' short forms, the builders, the command line."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypedDict

from haversack.finetuning import Finetuning, Quantizer, StoredWeights
from haversack.parallelism import Sharding
from haversack.plan import Candidates, Plan, RecomputeCandidates
from haversack.profile import Profile
from haversack.run import (
    Attention,
    Budget,
    BytesKind,
    Document,
    Loss,
    Measurement,
    NumberType,
    Optimizer,
    Precision,
    Recompute,
    StateBytes,
    Unit,
)
from haversack.spelling import Size
from haversack.verify import (
    Facet,
    TrainingCheckpoint,
    VerifyPlan,
    VerifyResume,
    VerifySchedule,
)

Model = str | PathLike[str] | Mapping[str, Any]
Config = str | PathLike[str] | Mapping[str, Any] | Document


class RunOptions(TypedDict, total=False):
    """Keywords of a training run. Sizes are bytes, or text such as "80GiB"; names are lower case.

    ``model`` is the path of a Hugging Face config.json, its folder, or the parsed mapping.
    ``configs`` are further files, each a path, a text, a mapping or a ``Document``; ``launch`` is a
    command line. ``device`` is a name of the catalogue, with a number in front: "8xh100-80gb".
    ``reshard_after_forward`` is FSDP2's: yes, no, or a number of ranks.
    ``offload`` says what lives on the host: "optimizer", "all" or "none". ``lora_rank``,
    ``lora_targets`` ("q_proj,v_proj"), ``trained_parts`` ("norms,head"), ``quantize`` ("nf4") and
    ``quantized_by`` ("torchtune-2024-04") are ``finetuning`` in short.
    """

    model: Model | None
    configs: Config | Sequence[Config] | None
    launch: str | None
    units: Sequence[Unit | Mapping[str, Any]] | None
    parameter_count: int | None
    state_bytes: StateBytes | str | Sequence[Size] | None
    gpus: int | None
    device: str | None
    gpu_memory: Size | None
    zero: int | None
    fsdp: bool
    tp: int | None
    pp: int | None
    cp: int | None
    ep: int | None
    virtual_stages: int | None
    expert_tp: int | None
    sequence_parallel: bool | None
    dp_replicate: int | None
    prefetch_units: int | None
    reshard_after_forward: bool | int | None
    gradient_as_bucket_view: bool | None
    offload: str | None
    ranks_per_node: int | None
    seq: int | None
    target_seq: int | None
    finetuning: Finetuning | None
    lora_rank: int | None
    lora_targets: str | Sequence[str] | None
    trained_parts: str | Sequence[str] | None
    quantize: StoredWeights | str | None
    quantized_by: Quantizer | str | None
    microbatch: int | None
    accumulation: int | None
    precision: Precision | str | None
    reduce_type: NumberType | str | None
    optimizer: Optimizer | str | None
    optimizer_in_backward: bool | None
    attention: Attention | str | None
    loss: Loss | str | None
    recompute: Recompute | str | None
    kernel_profile: str
    budget: Budget | Size | None
    budget_kind: BytesKind | str | None


class ModelPlanOptions(RunOptions, total=False):
    """Keywords of a plan of a model: those of its run, and what is asked of the plan.

    ``must_save`` and ``must_recompute`` name blocks; ``equal_treatment`` treats equal blocks and
    all ranks alike, ``without_segments`` leaves checkpoints around several blocks out; ``rank``
    plans for its class alone.
    """

    fit_expected: bool
    frontier_points: int | None
    state_limit: int | None
    must_save: Sequence[str]
    must_recompute: Sequence[str]
    equal_treatment: bool
    without_segments: bool
    rank: int | None


class PlanOptions(ModelPlanOptions, total=False):
    """Keywords of a plan, of code, a profile, a model or independent candidates.

    ``profile`` is one that ``haversack.torch.profile`` made, a plan that has one, or a file of
    either, whose ranks count where none are given; with ``measurements`` it is the plan whose real
    step was measured. ``workload`` is the name of a built-in one, or "package.module:factory",
    whose keyword arguments are ``args``; ``blocks`` names its modules that are the blocks.
    ``candidates`` and ``recompute_candidates`` are columns, or the nouns of them.
    """

    profile: Profile | Plan | str | PathLike[str] | None
    measurements: Sequence[Measurement | Mapping[str, Any]]
    workload: str | None
    args: Mapping[str, Any] | str | None
    blocks: Sequence[str]
    candidates: Candidates | Mapping[str, Any] | None
    recompute_candidates: RecomputeCandidates | Mapping[str, Any] | None


class VerifyOptions(TypedDict, total=False):
    """Keywords of a Verify job, beside the workload; what is not given keeps the noun's default.

    ``deadline`` is in seconds, ``memory`` in bytes or text such as "4GiB"; ``args`` are the
    factory's keyword arguments, as a mapping or as the text of a JSON object. ``plan`` may be a
    file of one; ``shard`` is "ddp" or "fsdp2", with a ``world_size`` of 2 or 4. ``resume`` "2:4"
    saves on 2 ranks and goes on with 4, under "fsdp2" unless ``shard`` says else; ``saved_as``
    is "sharded" or "full". ``device_count`` gives one process several GPUs, from ``device`` on.
    ``weights`` is a safetensors file or a folder of them, by its absolute path where the job runs.
    """

    args: Mapping[str, Any] | str | None
    seed: int
    device: str
    device_count: int | None
    strict: bool
    waive: Sequence[Facet | str]
    deadline: float | None
    memory: Size | None
    job_id: str
    use_reentrant: bool
    early_stop: bool | None
    preserve_rng_state: bool | None
    determinism_check: str
    schedule: VerifySchedule | str | None
    threads: int | None
    deterministic_algorithms: bool
    keep_after_disconnect: bool
    regions: Sequence[str]
    plan: Plan | VerifyPlan | str | PathLike[str] | None
    weights: str | PathLike[str]
    shard: Sharding | str | None
    world_size: int | None
    resume: VerifyResume | str | int | None
    saved_as: TrainingCheckpoint | str | None
    steps_before: int | None
    steps_after: int | None
    leave_out_each: bool
