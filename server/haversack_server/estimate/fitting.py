"""Changes with which a run fits, the cheapest first.

Every change leaves the training run what it is: fewer tokens at a time are made up for by more
microbatches in a step. Cost is the time that a step takes longer: recomputation by the roofline,
and bytes sent at the rate of a named link, as if nothing hid them. Changes that need more devices
come after all that do not. Where no change alone is enough on the same devices, two are tried, and
where they are not either, each on more devices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest
from haversack.parallelism import Sharding
from haversack.questions import Collective, FittingChange
from haversack.run import Attention, Optimizer, Recompute
from haversack_server.estimate.collectives import collectives, recompute_ns
from haversack_server.estimate.peaks import Peaks, RunPeak, limited_by
from haversack_server.estimate.verdict import Limit
from haversack_server.memory.degrees import Degrees, resolve
from haversack_server.memory.stopping import Stop, go_on

MOST_ANSWERED = 8
_DEGREES = (2, 4, 8)
_MORE_GPUS = (2, 4, 8)
_DEVICES = "devices"  # the kind of change that needs more of them
# NVIDIA DGX A100 datasheet: NVLink of 600 GB/s, both ways together, between the 8 GPUs of a node; a
# 200 Gb/s InfiniBand adapter for each GPU between nodes.
GPUS_OF_A_NODE = 8
NVLINK_BYTES_PER_S = 300 * 10**9
NETWORK_BYTES_PER_S = 25 * 10**9
RATES = (
    f"cost of a change: recomputation by the roofline, and bytes sent at "
    f"{NVLINK_BYTES_PER_S / 1e9:.0f} GB/s in a node of {GPUS_OF_A_NODE} GPUs and "
    f"{NETWORK_BYTES_PER_S / 1e9:.0f} GB/s between nodes (DGX A100 datasheet), as if nothing hid "
    "them"
)


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a kind; of one kind only one is made."""

    kind: str
    words: str
    cost: str
    request: EstimateRequest


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a step spends beside its own work."""

    ns: int
    sent_bytes: int


def fitting_changes(
    request: EstimateRequest, peaks: Peaks, limit: Limit, stop: Stop
) -> tuple[FittingChange, ...]:
    """Find the changes with which a run fits, the cheapest first; none if it fits as it is."""
    if peaks.fits(request, limit):
        return ()
    finder = _Finder(peaks, _cost(peaks.base, request), limit, stop)
    singles = list(_changes(request))
    found = [made for change in singles if (made := finder.fitting(change))]
    if all(made.extra_gpus for made in found):
        found += finder.pairs(singles, more_devices=False)
    if not found:
        found += finder.pairs(singles, more_devices=True)
    # Of equal costs, the one that changes least: what it leaves unused is kernels' work.
    found.sort(key=lambda made: (made.extra_gpus, made.extra_ns, -made.limited.high_bytes))
    return tuple(found[:MOST_ANSWERED])


class _Finder:
    """Judges changed runs beside the base."""

    def __init__(self, peaks: Peaks, cost: _Cost, limit: Limit, stop: Stop) -> None:
        self._peaks = peaks
        self._cost = cost
        self._limit = limit
        self._stop = stop

    def pairs(self, singles: Sequence[_Change], *, more_devices: bool) -> list[FittingChange]:
        """Answer two changes at once, on the same devices or on more."""
        found = []
        for first, second in combinations(singles, 2):
            if (_DEVICES in (first.kind, second.kind)) is more_devices:
                pair = _together(first, second)
                if pair and (made := self.fitting(pair)):
                    found.append(made)
        return found

    def fitting(self, change: _Change) -> FittingChange | None:
        """Answer a change, if the run then fits."""
        go_on(self._stop)
        made = self._peaks.of(change.request)
        if made is None:
            return None
        limited = limited_by(self._limit)(made.peak)
        if limited.high_bytes > self._limit.limit_bytes:
            return None
        cost = _cost(made, change.request)
        base = self._peaks.base
        return FittingChange(
            change=change.words,
            delta_bytes=made.expected_bytes - base.expected_bytes,
            limited=limited,
            extra_ns=cost.ns - self._cost.ns,
            extra_sent_bytes=cost.sent_bytes - self._cost.sent_bytes,
            extra_gpus=made.run.degrees.world_size - base.run.degrees.world_size,
            cost=change.cost,
        )


def _cost(made: RunPeak, request: EstimateRequest) -> _Cost:
    listed = collectives(made.run, request.training)
    sending_ns = sum(_sending_ns(each, made.run.degrees) for each in listed)
    return _Cost(
        ns=recompute_ns(made.run, request.training) + sending_ns,
        sent_bytes=sum(each.bytes_per_rank for each in listed),
    )


def _sending_ns(collective: Collective, degrees: Degrees) -> int:
    """Tensor-parallel ranks share a node; others do if the whole job does."""
    inside = collective.axis.startswith("tp=") or degrees.world_size <= GPUS_OF_A_NODE
    rate = NVLINK_BYTES_PER_S if inside else NETWORK_BYTES_PER_S
    return collective.bytes_per_rank * 10**9 // rate


def _changes(request: EstimateRequest) -> Iterator[_Change]:
    yield from _of_kernels(request)
    yield from _of_microbatch(request)
    yield from _of_sharding(request)
    yield from _of_devices(request)


def _of_kernels(request: EstimateRequest) -> Iterator[_Change]:
    training = request.training
    if training.attention is Attention.EAGER:
        flash = replace(training, attention=Attention.FLASH)
        yield _Change("attention", "attention flash", "", replace(request, training=flash))
    if training.optimizer is Optimizer.ADAMW_FOREACH:
        fused = replace(training, optimizer=Optimizer.ADAMW)
        yield _Change("optimizer", "optimizer adamw (fused)", "", replace(request, training=fused))
    if training.recompute is not Recompute.FULL:
        full = replace(training, recompute=Recompute.FULL, actions=())
        cost = "each layer's forward runs twice; haversack plan recomputes only what is needed"
        yield _Change("recompute", "recompute full", cost, replace(request, training=full))


def _of_microbatch(request: EstimateRequest) -> Iterator[_Change]:
    """Fewer sequences at a time, and as many more microbatches in a step."""
    training = request.training
    whole = training.microbatch or 1
    for part in (2**power for power in range(1, whole.bit_length()) if whole % 2**power == 0):
        smaller = replace(
            training, microbatch=whole // part, accumulation=(training.accumulation or 1) * part
        )
        words = f"microbatch {smaller.microbatch}, accumulation {smaller.accumulation}"
        cost = "less work per kernel"
        yield _Change("microbatch", words, cost, replace(request, training=smaller))


def _of_sharding(request: EstimateRequest) -> Iterator[_Change]:
    """More of the model sharded over the same ranks."""
    parallelism = request.parallelism
    degrees = resolve(parallelism)
    stages = (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)
    if degrees.dp_replicate * degrees.dp_shard > 1 and degrees.sharding is not Sharding.FSDP2:
        for stage in stages:
            if stage > degrees.sharding:
                sharded = replace(parallelism, sharding=stage, dp_shard=None, dp_replicate=None)
                words = f"zero {stage - Sharding.REPLICATED}"
                yield _Change("sharding", words, "", replace(request, parallelism=sharded))
    if degrees.tp > 1 and not degrees.sequence_parallel:
        split = replace(parallelism, sequence_parallel=True)
        yield _Change("sequence", "sequence parallel", "", replace(request, parallelism=split))
    yield from _of_axis(request, degrees, "tp", "collectives inside every layer")
    yield from _of_axis(request, degrees, "cp", "keys and values are sent in every layer")


def _of_axis(request: EstimateRequest, degrees: Degrees, axis: str, cost: str) -> Iterator[_Change]:
    """The same ranks, more of them along an axis: fewer data ranks, so more microbatches."""
    parallelism, training = request.parallelism, request.training
    data_ranks, now = degrees.dp_replicate * degrees.dp_shard, getattr(degrees, axis)
    for degree in _DEGREES:
        times = degree // now
        if degree <= now or degree % now or data_ranks % times:
            continue
        changed: dict[str, Any] = {axis: degree, "world_size": degrees.world_size}
        try:
            split = replace(parallelism, **changed)
        except InvalidRequestError:  # the data ranks were given, and stay
            continue
        more = replace(training, accumulation=(training.accumulation or 1) * times)
        words = f"{axis} {degree}, accumulation {more.accumulation}"
        made = replace(request, parallelism=split, training=more)
        yield _Change(axis, words, f"{cost}; less work per kernel", made)


def _of_devices(request: EstimateRequest) -> Iterator[_Change]:
    parallelism = request.parallelism
    ranks = resolve(parallelism).world_size
    for times in _MORE_GPUS:
        try:
            spread = replace(parallelism, world_size=ranks * times)
        except InvalidRequestError:  # every degree was given
            continue
        words = f"{ranks * times} GPUs"
        yield _Change(_DEVICES, words, "more devices", replace(request, parallelism=spread))


def _together(first: _Change, second: _Change) -> _Change | None:
    """Make two changes of different kinds at once."""
    if first.kind == second.kind:
        return None
    for change in _changes(first.request):
        if change.kind == second.kind and change.words.split(",")[0] == second.words.split(",")[0]:
            words = f"{first.words} + {change.words}"
            cost = "; ".join(cost for cost in (first.cost, change.cost) if cost)
            return _Change(f"{first.kind} {second.kind}", words, cost, change.request)
    return None
