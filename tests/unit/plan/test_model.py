"""Plans for a described model: what is predicted is what Estimate says of the plan's actions."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest, EstimateVerdict
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import (
    Plan,
    PlanConstraints,
    PlanRequest,
    PlanStatus,
    PlanWhatIf,
    Rung,
)
from haversack.run import (
    Attention,
    Budget,
    BytesKind,
    Device,
    Document,
    DocumentFormat,
    Occasion,
    Training,
)
from haversack.units import GIB
from haversack_server.estimate.answer import estimate
from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.degrees import resolve
from haversack_server.memory.margins import peak_of
from haversack_server.memory.recipe import recipe
from haversack_server.memory.schedule.settings import ScheduleSettings
from haversack_server.memory.spread import calibrated
from haversack_server.memory.states import UnitStates, rank_states
from haversack_server.memory.timeline import timeline
from haversack_server.plan import ceiling
from haversack_server.plan.answer import plan
from haversack_server.plan.solving import Solving

LLAMA_3_8B = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": false}""",
)
SHARDED = Parallelism(world_size=8, sharding=Sharding.FSDP2)


def planned(microbatch: int, budget: Budget | None = None, expected: bool = False) -> Plan:
    return plan(
        PlanRequest(
            documents=(LLAMA_3_8B,),
            training=Training(microbatch=microbatch, seq=8192),
            parallelism=SHARDED,
            device=Device(memory_bytes=80 * GIB),
            budget=budget,
            fit_expected=expected,
            frontier_points=4,
        )
    )


@pytest.mark.parametrize("microbatch", [1, 2])
def test_the_predicted_peak_is_what_estimate_says_of_the_actions(microbatch: int) -> None:
    answer = planned(microbatch)
    assert answer.status is PlanStatus.OPTIMAL
    assert answer.rung is Rung.CEILING
    recomputed = [action for action in answer.actions if action.option == "recompute"]
    assert 0 < len(recomputed) <= 32
    same = estimate(
        EstimateRequest(
            documents=(LLAMA_3_8B,),
            training=Training(microbatch=microbatch, seq=8192, actions=answer.actions),
            parallelism=SHARDED,
            device=Device(memory_bytes=80 * GIB),
        )
    )
    assert same.peak is not None
    assert same.peak.allocated.expected_bytes == answer.predicted_peak_bytes
    assert same.verdict is EstimateVerdict.FITS


def test_too_many_tokens_are_infeasible_and_the_floor_names_the_logits() -> None:
    answer = planned(4)
    assert answer.status is PlanStatus.INFEASIBLE
    assert answer.floor_at is not None
    assert answer.floor_at.moment == "backward head"
    assert answer.floor_at.largest_terms[0].startswith("logits and loss")
    assert "logits and loss" in answer.reason
    assert answer.relief[0].change == "microbatch 2"
    assert answer.relief[0].delta_bytes < 0


def test_the_device_s_budget_is_the_largest_with_which_the_run_fits() -> None:
    answer = planned(1)
    assert answer.budget is not None
    left = answer.budget.allocated_bytes
    assert answer.predicted_peak_bytes is not None
    assert answer.predicted_peak_bytes <= left
    profile, _ = calibrated("hf-eager", ("sharded parameters",), 8)
    degrees = resolve(SHARDED)
    assert peak_of(left, profile, degrees).device.high_bytes <= 80 * GIB
    assert peak_of(left + 1, profile, degrees).device.high_bytes > 80 * GIB
    assert any("outside the allocator" in step for step in answer.budget.steps)


def test_an_allocated_budget_is_fitted_to_the_high_end_unless_the_risk_is_taken() -> None:
    budget = Budget(bytes=40 * GIB, kind=BytesKind.ALLOCATED)
    careful, bold = planned(1, budget), planned(1, budget, expected=True)
    assert careful.budget is not None
    assert bold.budget is not None
    assert careful.budget.allocated_bytes < 40 * GIB == bold.budget.allocated_bytes
    assert careful.extra_ns > bold.extra_ns


def test_a_larger_budget_is_never_slower_and_the_frontier_ends_with_nothing_recomputed() -> None:
    frontier = planned(1).frontier
    costs = [point.cost for point in frontier]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0
    assert all(point.peak_bytes <= point.budget_bytes for point in frontier)


def test_a_plan_without_budget_or_device_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="budget"):
        plan(PlanRequest(documents=(LLAMA_3_8B,), training=Training(microbatch=1, seq=128)))


def test_what_is_not_planned_for_gets_no_plan_and_is_named() -> None:
    answer = plan(
        PlanRequest(
            documents=(LLAMA_3_8B,),
            training=Training(microbatch=1, seq=128, attention=Attention.UNKNOWN),
            budget=Budget(bytes=80 * GIB),
        )
    )
    assert answer.status is PlanStatus.UNSPECIFIED
    assert answer.actions == ()
    assert "not planned for yet" in answer.reason
    assert answer.not_modelled == (answer.reason,)


def test_a_budget_of_no_stated_kind_is_said_to_limit_allocated_bytes() -> None:
    unsaid = planned(1, Budget(bytes=40 * GIB))
    assert "budget: it limits allocated bytes" in unsaid.assumptions
    said = planned(1, Budget(bytes=40 * GIB, kind=BytesKind.ALLOCATED))
    assert "budget: it limits allocated bytes" not in said.assumptions


def test_states_have_nothing_to_plan() -> None:
    with pytest.raises(InvalidRequestError, match="parameter_count"):
        plan(PlanRequest(parameter_count=1, budget=Budget(bytes=1)))


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    sharding = draw(st.sampled_from(list(Sharding)[1:]))
    degrees = resolve(Parallelism(world_size=draw(st.sampled_from([1, 2, 4])), sharding=sharding))
    numbers, _ = recipe(Training(), sharding)
    small = st.integers(0, 60)
    units, blocks = [], []
    count = draw(st.integers(1, 5))
    for place in range(count):
        whole = draw(st.integers(0, 30))
        unit = UnitStates(name=f"b{place}", whole=whole, shard=-(-whole // degrees.dp_shard))
        rows = []
        for name in ("save", "recompute", "third")[: draw(st.integers(1, 3))]:
            retained = draw(small)
            forward, backward = retained + draw(small), retained + draw(small)
            rows.append(
                Option(
                    name=name,
                    retained_bytes=retained,
                    forward_peak_bytes=forward,
                    backward_peak_bytes=backward,
                    backward_points=((backward, draw(small)), (draw(small), 10**3)),
                    extra_ns=draw(small),
                )
            )
        units.append(unit)
        blocks.append(
            ChainBlock(
                name=unit.name,
                unit=unit,
                options=tuple(rows),
                root=draw(st.booleans()),
                input_gradient_bytes=draw(small),
                output_gradient_bytes=draw(small),
                passing_input_bytes=draw(small),
            )
        )
    return Chain(
        blocks=tuple(blocks),
        states=rank_states(units, numbers, degrees),
        recipe=numbers,
        degrees=degrees,
        accumulation=draw(st.integers(1, 2)),
        schedule=ScheduleSettings(
            reduce_bucket_elements=12,
            prefetch_units=draw(st.integers(0, 2)),
            reshard_after_forward=draw(st.booleans()),
            no_sync=draw(st.booleans()),
            overlap_reduce=draw(st.booleans()),
            max_reuse_elements=draw(st.sampled_from([0, 10**9])),
            persistent_elements=0,
            occasions=(Occasion.EVALUATION,),
        ),
    )


@given(chains())
@settings(max_examples=60, deadline=None)
def test_floor_and_plan_agree_with_every_choice_laid_onto_the_timeline(chain: Chain) -> None:
    """The oracle knows nothing of ceilings: it lays out every choice and reads the peak."""
    every = {
        choice: timeline(chain, choice).peak.allocated_bytes
        for choice in product(*(range(len(block.options)) for block in chain.blocks))
    }
    table = ceiling.tables(chain)
    floor = ceiling.floor(table)
    assert floor.peak_bytes == min(every.values()) == every[floor.choice]
    for budget in sorted(set(every.values()))[:6]:
        cheapest = min(_extra(chain, choice) for choice, peak in every.items() if peak <= budget)
        found, _ = ceiling.solve(table, budget, state_limit=100_000, solving=Solving())
        chosen = ceiling.local(table, found.options)
        assert found.proven
        assert found.extra == cheapest == _extra(chain, chosen)
        assert every[chosen] <= budget


def _extra(chain: Chain, choice: tuple[int, ...]) -> int:
    return sum(
        block.options[index].extra_ns for block, index in zip(chain.blocks, choice, strict=True)
    )


def test_a_run_too_large_to_be_written_is_refused_at_a_field_of_the_request() -> None:
    request = PlanRequest(
        documents=(LLAMA_3_8B,),
        training=Training(microbatch=2**31, seq=2**31),
        budget=Budget(bytes=GIB),
    )
    with pytest.raises(InvalidRequestError) as wrong:
        plan(request)
    assert wrong.value.field == "training.seq"


def constrained(constraints: PlanConstraints, budget_gib: int = 60) -> Plan:
    return plan(
        PlanRequest(
            documents=(LLAMA_3_8B,),
            training=Training(microbatch=1, seq=8192),
            parallelism=SHARDED,
            budget=Budget(bytes=budget_gib * GIB),
            constraints=constraints,
            frontier_points=0,
        )
    )


def test_blocks_that_must_save_or_recompute_do() -> None:
    named = PlanConstraints(
        must_save=("model.layers.0",), must_recompute=("model.layers.1", "model.layers.31")
    )
    options = {action.block: action.option for action in constrained(named, 100).actions}
    assert options["model.layers.0"] == "save"
    assert options["model.layers.1"] == options["model.layers.31"] == "recompute"
    assert [name for name, option in options.items() if option == "recompute"] == [
        "model.layers.1",
        "model.layers.31",
    ]


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (PlanConstraints(must_save=("nothing",)), r"must_save\[0\].*no block"),
        (PlanConstraints(must_recompute=("head",)), r"must_recompute\[0\].*can only be saved"),
        (
            PlanConstraints(must_save=("model.layers.3",), must_recompute=("model.layers.3",)),
            r"must_recompute\[0\].*is to be saved and recomputed",
        ),
    ],
)
def test_constraints_that_cannot_be_kept_are_refused(
    constraints: PlanConstraints, words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        constrained(constraints)


def test_variations_plan_as_requests_of_their_own_would() -> None:
    smaller = PlanWhatIf(name="smaller", budget=Budget(bytes=45 * GIB))
    request = PlanRequest(
        documents=(LLAMA_3_8B,),
        training=Training(microbatch=1, seq=8192),
        parallelism=SHARDED,
        budget=Budget(bytes=60 * GIB),
        what_ifs=(smaller,),
    )
    answer = plan(request)
    alone = plan(replace(request, budget=Budget(bytes=45 * GIB), what_ifs=()))
    assert answer.what_ifs[0].extra_ns == alone.extra_ns > answer.extra_ns
    assert answer.what_ifs[0].predicted_peak_bytes == alone.predicted_peak_bytes
