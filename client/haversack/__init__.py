"""Fits a training run into its memory budget, and proves that it still computes the same thing.

    with haversack.connect() as client:
        answer = client.estimate(model="config.json", gpus=8, gpu_memory="80GiB", zero=3)

Every name is loaded when it is first used: importing this package brings neither gRPC nor a noun,
and the server's rooms can import single nouns without the clients.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from haversack._async import AsyncClient, connect_async
    from haversack._sync import Client, connect
    from haversack.answer_files import read_plan, read_profile, write_plan, write_profile
    from haversack.basis import Basis
    from haversack.errors import (
        CallCancelledError,
        DeadlineError,
        HaversackError,
        InternalError,
        InvalidRequestError,
        MissingExtraError,
        NotFoundError,
        NotSupportedError,
        OverloadedError,
        UnavailableError,
        Violation,
    )
    from haversack.estimate import (
        Calibration,
        Estimate,
        EstimateRequest,
        EstimateVerdict,
        HostMemory,
        Moment,
        Peak,
        Phase,
        RankClass,
        ReasonCode,
        Term,
        TermCategory,
        WhatIf,
        WhatIfAnswer,
    )
    from haversack.evidence import Evidence
    from haversack.finetuning import Finetuning, Quantizer, StoredWeights
    from haversack.parallelism import (
        BackwardPrefetch,
        ContextParallel,
        Parallelism,
        PipelineSchedule,
        Sharding,
        WrapPolicy,
    )
    from haversack.plan import (
        Baseline,
        BudgetConversion,
        Candidates,
        Certificate,
        CertifiedPhase,
        CountedStep,
        FrontierPoint,
        FrontierReading,
        MomentPeak,
        PeakAt,
        Plan,
        PlanConstraints,
        PlanRequest,
        PlanStatus,
        PlanWhatIf,
        PlanWhatIfAnswer,
        RankPlan,
        RecomputeCandidates,
        Rung,
        SolvedBy,
    )
    from haversack.profile import (
        OptionTable,
        Profile,
        ProfileBlock,
        ProfileParameter,
        SkipKeeper,
        SkipTensor,
    )
    from haversack.questions import (
        Collective,
        CollectiveKind,
        EstimateQuestion,
        FittingChange,
        MeasuredBytes,
        OomCause,
        OomCauseKind,
        OomExplanation,
        OomMatch,
        OomMatchKind,
        OutOfMemory,
        Residual,
        ResidualPosition,
    )
    from haversack.requests import estimate_request, plan_request, verify_request
    from haversack.run import (
        Advice,
        Attention,
        BlockAction,
        Budget,
        BytesKind,
        Device,
        Document,
        DocumentFormat,
        Fp8Recipe,
        Interval,
        Loss,
        Measurement,
        NumberType,
        Occasion,
        OffloadModule,
        Optimizer,
        OptimizerKernel,
        Precision,
        Recompute,
        RecomputeMethod,
        RecomputeModule,
        StateBytes,
        StateDict,
        Training,
        Unit,
        WorkloadReference,
    )
    from haversack.trace import Trace, TracedPhase
    from haversack.units import format_bytes, format_ns, parse_bytes
    from haversack.verify import (
        JobState,
        ListWorkloadsResponse,
        VerifyEvent,
        VerifyProgress,
        VerifyQueued,
        VerifyRequest,
        VerifyRunning,
        WorkloadInfo,
    )
    from haversack.verify_applied import VerifyApplied
    from haversack.verify_devices import ListVerifyDevicesResponse, VerifyDevice
    from haversack.verify_facets import (
        Facet,
        FacetResult,
        FacetSeverity,
        FacetValue,
        VerifyWaiver,
    )
    from haversack.verify_jobs import ListVerifyJobsRequest, ListVerifyJobsResponse, VerifyJob
    from haversack.verify_parts import VerifyLimits, VerifyPlan, VerifyWorld
    from haversack.verify_report import (
        DifferenceCause,
        FailureReason,
        FirstDifference,
        RandomSource,
        RecomputeCount,
        SavedValues,
        StateChange,
        VerifyEnvironment,
        VerifyEvidence,
        VerifyFailure,
        VerifyMemory,
        VerifyReport,
        VerifySchedule,
        VerifyTime,
        VerifyVerdict,
    )
    from haversack.verify_resume import (
        LeftOutState,
        ResumedStep,
        TrainingCheckpoint,
        VerifyResume,
        VerifyResumed,
    )
    from haversack.verify_sharded import CollectiveCount, VerifyRank, VerifySharded

__all__ = [
    "Advice", "AsyncClient", "Attention", "BackwardPrefetch", "Baseline", "Basis", "BlockAction",
    "Budget", "BudgetConversion", "BytesKind", "Calibration", "CallCancelledError", "Candidates",
    "Certificate", "CertifiedPhase", "Client", "Collective", "CollectiveCount", "CollectiveKind",
    "ContextParallel", "CountedStep", "DeadlineError", "Device", "DifferenceCause", "Document",
    "DocumentFormat", "Estimate", "EstimateQuestion", "EstimateRequest", "EstimateVerdict",
    "Evidence", "Facet", "FacetResult", "FacetSeverity", "FacetValue", "FailureReason",
    "Finetuning", "FirstDifference", "FittingChange", "Fp8Recipe", "FrontierPoint",
    "FrontierReading", "HaversackError", "HostMemory", "InternalError", "Interval",
    "InvalidRequestError", "JobState", "LeftOutState", "ListVerifyDevicesResponse",
    "ListVerifyJobsRequest", "ListVerifyJobsResponse", "ListWorkloadsResponse", "Loss",
    "MeasuredBytes", "Measurement", "MissingExtraError", "Moment", "MomentPeak", "NotFoundError",
    "NotSupportedError", "NumberType", "Occasion", "OffloadModule", "OomCause", "OomCauseKind",
    "OomExplanation", "OomMatch", "OomMatchKind", "Optimizer", "OptimizerKernel", "OptionTable",
    "OutOfMemory", "OverloadedError", "Parallelism", "Peak", "PeakAt", "Phase",
    "PipelineSchedule", "Plan", "PlanConstraints", "PlanRequest", "PlanStatus", "PlanWhatIf",
    "PlanWhatIfAnswer", "Precision", "Profile", "ProfileBlock", "ProfileParameter", "Quantizer",
    "RandomSource", "RankClass", "RankPlan", "ReasonCode", "Recompute", "RecomputeCandidates",
    "RecomputeCount", "RecomputeMethod", "RecomputeModule", "Residual", "ResidualPosition",
    "ResumedStep", "Rung", "SavedValues", "Sharding", "SkipKeeper", "SkipTensor", "SolvedBy",
    "StateBytes", "StateChange", "StateDict", "StoredWeights", "Term", "TermCategory", "Trace",
    "TracedPhase", "Training", "TrainingCheckpoint", "UnavailableError", "Unit", "VerifyApplied",
    "VerifyDevice", "VerifyEnvironment", "VerifyEvent", "VerifyEvidence", "VerifyFailure",
    "VerifyJob", "VerifyLimits", "VerifyMemory", "VerifyPlan", "VerifyProgress", "VerifyQueued",
    "VerifyRank", "VerifyReport", "VerifyRequest", "VerifyResume", "VerifyResumed",
    "VerifyRunning", "VerifySchedule", "VerifySharded", "VerifyTime", "VerifyVerdict",
    "VerifyWaiver", "VerifyWorld", "Violation", "WhatIf", "WhatIfAnswer", "WorkloadInfo",
    "WorkloadReference", "WrapPolicy", "__version__", "connect", "connect_async",
    "estimate_request", "format_bytes", "format_ns", "parse_bytes", "plan_request", "read_plan",
    "read_profile", "verify_request", "write_plan", "write_profile",
]  # fmt: skip

_MODULES = (  # the light ones first
    "errors", "units", "basis", "parallelism", "profile", "finetuning", "training", "run",
    "questions", "evidence", "trace", "estimate", "plan",
    "verify_devices", "verify_facets", "verify_parts", "verify_applied", "verify_resume",
    "verify_sharded", "verify_report",
    "verify", "verify_jobs",
    "requests", "answer_files", "_sync", "_async",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a public name from the first module that has it, once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in _MODULES:
        loaded = importlib.import_module(f"{__name__}.{module}")
        if hasattr(loaded, name):
            globals()[name] = getattr(loaded, name)
            return globals()[name]
    raise AttributeError(f"{name} is public, and in none of {', '.join(_MODULES)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
