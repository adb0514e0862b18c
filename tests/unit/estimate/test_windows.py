"""Three unequal units: gather windows by hand, moment by moment."""

from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import Unit
from haversack_server.estimate.answer import estimate

UNITS = (
    Unit(name="a", parameter_count=1000),
    Unit(name="b", parameter_count=3000),
    Unit(name="c", parameter_count=500),
)


def answer(sharding: Sharding = Sharding.ZERO_3, prefetch: int | None = None) -> Estimate:
    parallelism = Parallelism(world_size=4, sharding=sharding, prefetch_units=prefetch)
    return estimate(EstimateRequest(units=UNITS, parallelism=parallelism))


def windows(found: Estimate, term: str, step: int = 2) -> dict[str, int]:
    place = [each.name for each in found.terms].index(term)
    return {
        moment.name: moment.term_bytes[place]
        for moment in found.timeline
        if moment.phase.startswith(f"step {step}")
    }


def test_a_unit_is_gathered_in_its_forward_and_its_backward_and_not_between() -> None:
    gathered = windows(answer(), "gathered unit")
    assert gathered == {
        "forward a": 2000,
        "forward b": 6000,
        "forward c": 1000,
        "backward c": 1000,
        "reduce c": 1000,
        "backward b": 6000,
        "reduce b": 6000,
        "backward a": 2000,
        "reduce a": 2000,
        "optimizer step": 0,
    }


def test_gradients_shrink_to_shards_once_they_are_reduced() -> None:
    kept = windows(answer(), "gradients")
    assert (kept["backward c"], kept["backward b"], kept["backward a"]) == (0, 250, 1750)
    assert kept["optimizer step"] == 4500 * 2 // 4


def test_units_ahead_are_gathered_only_if_asked_for() -> None:
    assert "prefetched units" not in {term.name for term in answer().terms}
    ahead = windows(answer(prefetch=1), "prefetched units")
    assert (ahead["forward a"], ahead["forward b"], ahead["forward c"]) == (6000, 1000, 0)
    assert (ahead["backward c"], ahead["backward b"], ahead["backward a"]) == (6000, 2000, 0)


def test_optimizer_moments_appear_in_the_first_optimizer_step() -> None:
    moments = windows(answer(), "optimizer moments", step=1)
    assert moments["forward a"] == 0
    assert moments["optimizer step"] == 4500 * 8 // 4


def test_the_answer_calls_the_windows_idealised_and_no_measurement_and_claims_no_peak() -> None:
    found = answer()
    assert "idealised" in found.assumptions[0]
    assert "not a measurement" in found.assumptions[0]
    assert found.peak is None


def test_terms_sum_to_what_every_moment_holds() -> None:
    for sharding in Sharding:
        for moment in answer(sharding).timeline:
            assert sum(moment.term_bytes) == moment.allocated_bytes


def test_nothing_is_gathered_where_parameters_are_whole() -> None:
    names = {term.name for term in answer(Sharding.ZERO_2).terms}
    assert "gathered unit" not in names
    assert "reduce buffers" in names


def test_the_brief_answer_leaves_the_windows_out_and_keeps_their_terms() -> None:
    request = EstimateRequest(
        units=UNITS,
        parallelism=Parallelism(world_size=4, sharding=Sharding.ZERO_3),
        questions=(EstimateQuestion.BRIEF,),
    )
    brief = estimate(request)
    assert brief.timeline == ()
    assert brief.terms == answer().terms
