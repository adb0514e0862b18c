"""Minimum cuts of a block against every choice there is, on graphs small enough to try them all."""

import itertools
import random
from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="results are those of PyTorch's operations")

from haversack.torch.min_cut import Cut, hull
from haversack.torch.results import Result

SAVED, AGAIN, OUT = range(3)


def result(place: int, size_bytes: int, time_ns: float, *reads: int, **flags: bool) -> Result:
    found = Result(("op", place), size_bytes, time_ns, set(reads))
    found.is_needed, found.is_fixed = flags.get("needed", False), flags.get("fixed", False)
    return found


def drawn(seed: int) -> list[Result]:
    """Draw up to six results; the last one is needed, so that the recomputation reaches it."""
    rng = random.Random(seed)
    count = rng.randint(1, 6)
    return [
        result(
            place,
            rng.randint(0, 9),
            rng.randint(0, 9),
            *(read for read in range(place) if rng.random() < 0.5),
            needed=rng.random() < 0.4 or place == count - 1,
            fixed=rng.random() < 0.2,
        )
        for place in range(count)
    ]


def choices(results: list[Result]) -> Iterator[tuple[int, int]]:
    """Give bytes and time, in ps, of every choice that a recomputation could carry out."""
    for chosen in itertools.product((SAVED, AGAIN, OUT), repeat=len(results)):
        made = list(zip(chosen, results, strict=True))
        if any(
            (each.is_fixed and what != AGAIN)
            or (each.is_needed and what == OUT)
            or (what == AGAIN and any(chosen[read] == OUT for read in each.reads))
            for what, each in made
        ):
            continue
        yield (
            sum(each.size_bytes for what, each in made if what == SAVED),
            sum(round(1000 * each.time_ns) for what, each in made if what == AGAIN),
        )


def lower_hull(points: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Keep the corners that some price of a byte makes the cheapest."""
    front = [a for a in points if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in points)]
    return {
        b
        for b in front
        if not any(
            a[0] < b[0] < c[0] and (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
            for a in front
            for c in front
        )
    }


@pytest.mark.parametrize("seed", range(40))
def test_the_corners_are_those_of_every_choice(seed: int) -> None:
    results = drawn(seed)
    corners = lower_hull(set(choices(results)))
    everything = 0, sum(round(1000 * each.time_ns) for each in results)
    found = {(cut.size_bytes, cut.time_ps) for cut in hull(results, most=99)}
    assert found <= corners
    assert corners - found <= {everything, min(corners, key=lambda corner: corner[1])}


def norm_and_two_products() -> list[Result]:
    """A norm read by a product, and an activation between it and another product."""
    return [
        result(0, 8, 1),  # the norm: cheap, and needed for the weights of the first product
        result(1, 8, 100, 0),
        result(2, 8, 1, 1),
        result(3, 8, 100, 2),
        result(4, 0, 1, 3, needed=True),
    ]


def test_what_only_went_into_saved_results_is_left_out() -> None:
    free = hull(norm_and_two_products(), most=4)
    # The last result costs no bytes, and nothing else is needed.
    assert free == [Cut(frozenset({("op", 4)}), frozenset(("op", i) for i in range(4)), 0, 0)]


def test_a_result_drawn_at_random_runs_again_and_what_follows_the_last_needed_is_not_asked() -> (
    None
):
    results = [
        result(0, 8, 5, fixed=True),
        result(1, 8, 9, 0, needed=True),
        result(2, 8, 9, 1),
    ]
    saved = Cut(frozenset({("op", 1)}), frozenset(), 8, 5_000)
    assert hull(results, most=4) == [saved]


def test_nothing_is_kept_that_nobody_needs_even_for_nothing() -> None:
    results = [
        result(0, 0, 0),
        result(1, 8, 5, 0),
        result(2, 0, 0),
        result(3, 8, 9, 1, needed=True),
        result(4, 8, 1, needed=True),
    ]
    (cut,) = [each for each in hull(results, most=4) if each.size_bytes == 8]
    assert cut.saved == {("op", 3)}
    assert cut.left_out == {("op", place) for place in range(3)}


def test_no_more_corners_than_asked_for_come_and_those_far_below_chords_come_first() -> None:
    results = [result(i, 10, time, needed=True) for i, time in enumerate((1, 2, 30, 40))]
    all_of_them = hull(results, most=9)
    assert [(cut.size_bytes, cut.time_ps) for cut in all_of_them] == [
        (20, 3_000),
        (10, 33_000),
        (30, 1_000),
    ]
    assert hull(results, most=1) == all_of_them[:1]
    assert hull([result(0, 8, 5)], most=9) == []
