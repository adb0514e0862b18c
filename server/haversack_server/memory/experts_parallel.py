"""Expert parallelism: how many rows arrive at a rank's experts, and how they get there and back.

A rank routes its own tokens (under sequence parallelism its share of them), sends each row to the
rank of its expert, and gets as many back. What arrives does not shrink with the number of ranks:
``ep`` ranks send to ``ep`` ranks. As Megatron-LM's all-to-all dispatcher does it
(megatron/core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher): permute,
all-to-all, gather over the expert's tensor-parallel ranks, sort by expert; and back.
"""

from dataclasses import dataclass

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.blocks import Shape
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Router

BALANCED = 1000  # rows on a rank per 1,000 of the average


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Tokens that a rank routes, rows that arrive at its experts, and its experts' width."""

    rows: int
    arriving: int
    local_experts: int
    ffn: int


def dispatches(shape: Shape, profile: KernelProfile) -> bool:
    """Tell whether rows travel: not where every rank has a slice of every expert.

    Megatron-LM gathers rows, not tokens: under sequence parallelism they travel all the same.
    """
    gathers_rows = profile.experts_weighed_inside and shape.sequence_parallel and shape.tp > 1
    return shape.ep > 1 or (shape.expert_tp or shape.tp) != shape.tp or gathers_rows


def dispatch(model: Architecture, shape: Shape) -> Dispatch:
    """Count rows; refuses what cannot be divided."""
    expert_tp = shape.expert_tp or shape.tp
    _check(model, shape, expert_tp)
    sent = shape.stream_rows * model.experts_per_token
    mean = sent * expert_tp
    arriving = -(-mean * shape.expert_load_permille // BALANCED)
    if shape.expert_capacity_permille:
        arriving = -(-mean * shape.expert_capacity_permille // BALANCED)
    return Dispatch(
        rows=shape.stream_rows,
        arriving=min(arriving, most_rows(model, shape)),
        local_experts=model.experts // shape.ep,
        ffn=-(-model.ffn // expert_tp),
    )


def most_rows(model: Architecture, shape: Shape) -> int:
    """Count the rows of one rank where every token chooses as many of its experts as there are."""
    expert_tp = shape.expert_tp or shape.tp
    tokens = shape.stream_rows * shape.ep * expert_tp
    return tokens * min(model.experts_per_token, model.experts // shape.ep)


def worst_load_permille(model: Architecture, shape: Shape) -> int:
    """Give the load at which every row that can arrives at one rank."""
    mean = shape.stream_rows * model.experts_per_token * (shape.expert_tp or shape.tp)
    return -(-most_rows(model, shape) * BALANCED // mean)


def _check(model: Architecture, shape: Shape, expert_tp: int) -> None:
    if model.routing.router is Router.DENSE:
        raise NotSupportedError(
            f"parallelism.ep: {model.family} runs every expert on every token, which is modelled "
            "on ranks that have all experts only; use tp"
        )
    if model.experts % shape.ep:
        raise InvalidRequestError(
            f"ep={shape.ep} does not divide {model.experts} experts; use a divisor of them",
            field="parallelism.ep",
        )
    if shape.tp > 1 and not shape.sequence_parallel:
        raise InvalidRequestError(
            f"experts on other ranks under tp={shape.tp} need sequence_parallel, so that each rank "
            "routes tokens of its own; switch it on",
            field="parallelism.sequence_parallel",
        )
    if model.ffn % expert_tp:
        raise InvalidRequestError(
            f"expert_tp={expert_tp} does not divide the experts' width of {model.ffn}",
            field="parallelism.expert_tp",
        )


def arrive(tape: TapeBuilder, model: Architecture, given: Dispatch, chosen: str) -> tuple[str, str]:
    """Append the way of the chosen rows to the experts; return them, and their experts' numbers."""
    size = given.arriving * model.hidden * tape.itemsize
    there = tape.apply("dispatched rows", [chosen], size)
    if given.local_experts > 1:
        there = tape.apply("rows by expert", [there], size)
    numbers = tape.storage("experts of rows", given.arriving * parts.INDEX_BYTES, 0)
    tape.add("experts of rows", [], [numbers])
    return there, numbers


def return_home(tape: TapeBuilder, model: Architecture, given: Dispatch, done: str) -> str:
    """Append the way back, to as many rows as were sent."""
    if given.local_experts > 1:
        done = tape.apply("rows by rank", [done], tape.size(done))
    size = given.rows * model.experts_per_token * model.hidden * tape.itemsize
    return tape.apply("combined rows", [done], size)
