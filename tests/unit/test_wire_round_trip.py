"""What is written can be read: ``from_message(to_message(x)) == x`` for every noun."""

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack import wire
from haversack.errors import InvalidRequestError
from haversack.estimate import Estimate, EstimateRequest, Peak
from haversack.finetuning import PARTS, TARGETS, Finetuning, Quantizer, StoredWeights
from haversack.parallelism import Parallelism
from haversack.plan import Candidates, PlanRequest, RecomputeCandidates
from haversack.profile import OptionTable, Profile, ProfileBlock, SkipKeeper, SkipTensor
from haversack.questions import EstimateQuestion, OutOfMemory
from haversack.run import (
    BlockAction,
    Budget,
    BytesKind,
    Document,
    DocumentFormat,
    Measurement,
    OffloadModule,
    Recompute,
    RecomputeModule,
    StateBytes,
    Training,
    Unit,
    WorkloadReference,
)
from haversack.v1 import verify_pb2
from haversack.verify import (
    CancelVerifyRequest,
    Facet,
    JobState,
    VerifyEvent,
    VerifyPlan,
    VerifyRequest,
    VerifyResume,
)
from haversack.verify_jobs import GetVerifyJobRequest, ListVerifyJobsRequest

Strategy = st.SearchStrategy[Any]

POSITIVE = st.integers(1, 2**16)  # inside every range that a constructor checks
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)
NONE: Strategy = st.none()
FALSE: Strategy = st.none() | st.just(False)
NOTHING: Strategy = st.just(())
NO_RECOMPUTE = st.just(Recompute.UNSPECIFIED)
RATE = st.none() | st.floats(1.0, 1e9)
QUESTIONS = [each for each in EstimateQuestion if each and each is not EstimateQuestion.BRIEF]
JOB_ID = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
SCALARS: dict[type, Strategy] = {
    bool: st.booleans(),
    str: TEXT,
    float: st.floats(allow_nan=False),
}


def of_hint(hint: Any, integers: st.SearchStrategy[int]) -> Strategy:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = next(each for each in arguments if each is not types.NoneType)
        return st.none() | of_hint(inner, integers)
    if origin is tuple:
        return st.lists(of_hint(arguments[0], integers), max_size=3).map(tuple)
    if dataclasses.is_dataclass(hint):
        return nouns(typing.cast(type, hint))
    if issubclass(hint, enum.IntEnum):
        return st.sampled_from(list(hint))
    return integers if hint is int else SCALARS[hint]


def built(noun_class: Any, **fields: Strategy) -> Strategy:
    """Build a noun from a strategy for every field: the one given, or by the type's hint.

    Any integer where no constructor looks at it; records of answers have none.
    """
    integers = POSITIVE if hasattr(noun_class, "__post_init__") else INT64
    hints = typing.get_type_hints(noun_class)
    others = {name: of_hint(hint, integers) for name, hint in hints.items() if name not in fields}
    return st.builds(noun_class, **fields, **others)


@functools.cache
def nouns(noun_class: type) -> Strategy:
    return SPECIAL[noun_class]() if noun_class in SPECIAL else built(noun_class)


def columns(noun_class: Any, *names: str) -> Strategy:
    """A table whose columns are equally long."""
    hints = typing.get_type_hints(noun_class)
    elements = {name: of_hint(typing.get_args(hints[name])[0], POSITIVE) for name in names}

    def of_length(length: int) -> Strategy:
        sized = {
            name: st.lists(element, min_size=length, max_size=length).map(tuple)
            for name, element in elements.items()
        }
        return st.builds(noun_class, **sized)

    return st.integers(0, 4).flatmap(of_length)


def skips(blocks: tuple[ProfileBlock, ...], tables: tuple[OptionTable, ...]) -> Strategy:
    """At most one tensor, of no more than its maker retains."""
    if not blocks:
        return NOTHING
    last = len(blocks) - 1
    least = min(tables[blocks[0].table].retained_bytes, default=0)
    keeper = built(SkipKeeper, block=st.integers(0, last))
    tensor = built(
        SkipTensor,
        size_bytes=st.integers(0, least),
        maker=st.just(0),
        read_until=st.just(last),
        kept_from=st.none() | st.integers(0, last),
        keepers=st.lists(keeper, max_size=2).map(tuple),
    )
    return st.lists(tensor, max_size=1).map(tuple)


def profiles() -> Strategy:
    def with_blocks(tables: tuple[OptionTable, ...]) -> Strategy:
        block = built(ProfileBlock, table=st.integers(0, len(tables) - 1))
        blocks = st.lists(block, max_size=3).map(tuple)
        return blocks.flatmap(
            lambda found: built(
                Profile,
                tables=st.just(tables),
                blocks=st.just(found),
                skip_tensors=skips(found, tables),
                format_version=st.just(1),
            )
        )

    return st.lists(nouns(OptionTable), min_size=1, max_size=3).map(tuple).flatmap(with_blocks)


def training(**fields: Strategy) -> Strategy:
    """Settings of a step; the parts that run again, or go to the host, are named."""
    named = st.sampled_from([each for each in RecomputeModule if each])
    moved = st.sampled_from([each for each in OffloadModule if each])
    fields |= {
        "recompute_modules": st.lists(named, max_size=3).map(tuple),
        "offload_modules": st.lists(moved, max_size=3).map(tuple),
    }
    # An optimizer in backward does not add up gradients.
    adding = built(Training, optimizer_in_backward=FALSE, **fields)
    once = fields | {"accumulation": NONE}
    return adding | built(Training, **once)


def finetunings() -> Strategy:
    """Something trains: adapters on products that exist, or named parts."""
    fields: dict[str, Strategy] = {
        "rank": st.integers(1, 2**20),
        "targets": st.lists(st.sampled_from(TARGETS), max_size=3).map(tuple),
        "trained_parts": st.lists(st.sampled_from(PARTS), max_size=3).map(tuple),
        "adapter_dropout": st.none() | st.floats(0, 0.9),
    }
    stored = st.just(StoredWeights.NF4_DOUBLE)  # what a quantizer makes
    by_hand = built(Finetuning, quantized_by=st.just(Quantizer.UNSPECIFIED), **fields)
    return by_hand | built(Finetuning, frozen_weights=stored, **fields)


def requests(noun_class: type, subjects: list[str], **fields: Strategy) -> Strategy:
    """A request about one subject."""
    hints = typing.get_type_hints(noun_class)
    empty = {
        name: NOTHING if typing.get_origin(hints[name]) is tuple else NONE for name in subjects
    }

    def about(subject: str) -> Strategy:
        asked = of_hint(hints[subject], POSITIVE).filter(bool)
        return built(noun_class, **(empty | {subject: asked} | fields))

    return st.sampled_from(subjects).flatmap(about)


def workloads() -> Strategy:
    named = st.builds(WorkloadReference, name=TEXT.filter(bool))
    entered = st.builds(
        WorkloadReference, entry_point=st.just("a.b:c"), args_json=st.just('{"layers": 2}')
    )
    return named | entered


def verify_plans() -> Strategy:
    """Each block in one way."""
    actions = st.lists(nouns(BlockAction), max_size=3, unique_by=lambda action: action.block)
    return built(VerifyPlan, actions=actions.map(tuple))


def verify_requests() -> Strategy:
    return built(
        VerifyRequest,
        job_id=st.just("") | JOB_ID,
        device=st.sampled_from(["", "cpu", "cuda:3"]),
        determinism_check=st.sampled_from(["", "default", "none"]),
        waivers=st.lists(st.sampled_from([each for each in Facet if each])).map(tuple),
        threads=st.none() | st.integers(1, 1024),
        device_count=st.none() | st.integers(1, 64),
        regions=NOTHING,
    )


def events() -> Strategy:
    hints = typing.get_type_hints(VerifyEvent)
    names = ("queued", "running", "progress", "report")

    def happened(name: str) -> Strategy:
        fields = dict.fromkeys(names, NONE) | {name: nouns(typing.get_args(hints[name])[0])}
        return built(VerifyEvent, **fields)

    return st.sampled_from(names).flatmap(happened)


SUBJECTS = ["state_bytes", "parameter_count", "units", "documents", "profile", "workload"]
# Nouns whose constructor checks more than ranges.
SPECIAL: dict[type, Callable[[], Strategy]] = {
    Parallelism: lambda: built(
        Parallelism, world_size=NONE, prefetch_units=st.none() | st.integers(0, 64)
    ),
    Training: lambda: training(recompute=NO_RECOMPUTE) | training(actions=NOTHING),
    Document: lambda: built(
        Document, format=st.sampled_from([each for each in DocumentFormat if each])
    ),
    Finetuning: finetunings,
    Unit: lambda: built(Unit, parameter_count=POSITIVE),
    OptionTable: lambda: columns(OptionTable, *typing.get_type_hints(OptionTable)),
    Candidates: lambda: columns(Candidates, "size_bytes", "gain", "names"),
    RecomputeCandidates: lambda: columns(RecomputeCandidates, "freed_bytes", "added_ns", "names"),
    Profile: profiles,
    WorkloadReference: workloads,
    Measurement: lambda: (
        built(Measurement, allocated_bytes=POSITIVE, reserved_bytes=NONE, tokens_per_s=RATE)
        | built(Measurement, allocated_bytes=NONE, reserved_bytes=POSITIVE, tokens_per_s=RATE)
    ),
    OutOfMemory: lambda: built(OutOfMemory, requested_bytes=POSITIVE),
    EstimateRequest: lambda: requests(
        EstimateRequest, SUBJECTS, questions=st.lists(st.sampled_from(QUESTIONS)).map(tuple)
    ),
    PlanRequest: lambda: requests(
        PlanRequest,
        [*SUBJECTS, "candidates", "recompute_candidates"],
        training=training(recompute=NO_RECOMPUTE, actions=NOTHING),
        frontier_points=st.none() | st.integers(0, 64),
        blocks=NOTHING,
        budget=built(Budget, kind=st.sampled_from([BytesKind.UNSPECIFIED, BytesKind.ALLOCATED])),
    ),
    VerifyPlan: verify_plans,
    VerifyRequest: verify_requests,
    VerifyResume: lambda: built(
        VerifyResume,
        size=st.none() | st.integers(1, 4),
        steps_before=st.none() | st.integers(1, 100),
        steps_after=st.none() | st.integers(1, 100),
    ),
    VerifyEvent: events,
    CancelVerifyRequest: lambda: built(CancelVerifyRequest, job_id=JOB_ID),
    GetVerifyJobRequest: lambda: built(GetVerifyJobRequest, job_id=JOB_ID),
    ListVerifyJobsRequest: lambda: built(
        ListVerifyJobsRequest,
        page_size=st.none() | st.integers(1, 1000),
        states=st.lists(st.sampled_from(list(JobState)[1:])).map(tuple),
    ),
}


@pytest.mark.parametrize("noun_class", wire.MESSAGES, ids=lambda each: each.__name__)
@given(data=st.data())
def test_a_noun_that_travels_arrives_as_it_was(noun_class: type, data: st.DataObject) -> None:
    noun = data.draw(nouns(noun_class))
    sent = wire.message_of(noun)
    arrived = type(sent).FromString(sent.SerializeToString())
    assert wire.from_message(noun_class, arrived) == noun


@given(data=st.data())
def test_equal_nouns_travel_as_equal_bytes(data: st.DataObject) -> None:
    noun = data.draw(nouns(PlanRequest))
    once = wire.message_of(noun).SerializeToString(deterministic=True)
    assert wire.message_of(dataclasses.replace(noun)).SerializeToString(deterministic=True) == once


@pytest.mark.parametrize("peak", [None, Peak()])
def test_an_empty_noun_is_not_one_that_was_left_out(peak: Peak | None) -> None:
    assert wire.from_message(Estimate, wire.message_of(Estimate(peak=peak))).peak == peak


def test_a_default_is_left_out_and_read_as_the_default() -> None:
    request = EstimateRequest(state_bytes=StateBytes())
    message = wire.message_of(request)
    assert message.HasField("state_bytes")
    assert not message.HasField("training")
    assert wire.from_message(EstimateRequest, message) == request


def test_a_noun_without_a_default_is_read_from_nothing_too() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        wire.from_message(VerifyRequest, verify_pb2.VerifyRequest())
    assert caught.value.field == "workload.name"


def test_actions_keep_their_order() -> None:
    actions = tuple(BlockAction(block=f"layers.{at}", option="save") for at in range(5))
    request = EstimateRequest(parameter_count=1, training=Training(actions=actions))
    assert wire.from_message(EstimateRequest, wire.message_of(request)).training.actions == actions
