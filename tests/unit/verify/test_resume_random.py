"""Random states on another number of ranks: what is certain, and what nobody can say."""

from dataclasses import replace

import pytest

from haversack.verify import Facet, FacetValue, VerifyResume, VerifyVerdict, VerifyWorld
from haversack_server.verify.resumable import resume_of
from haversack_server.verify.resume_hints import resume_hint
from haversack_server.verify.resume_random import SourceRead, random_finding
from haversack_server.verify.verdict import judge

MORE = resume_of(VerifyResume(size=4), VerifyWorld(size=2))
LOST = SourceRead(
    source="torch cpu", drawn_before=True, drawn_after=True, unchanged=True, begins_again=True
)
RESTORED = SourceRead(source="torch cpu", drawn_before=True, drawn_after=True, of_ranks=(0,))
UNKNOWN = replace(RESTORED, of_ranks=())


def value(*reads: SourceRead) -> FacetValue:
    return random_finding(list(enumerate(reads)), MORE).value


def test_a_generator_that_begins_again_is_named_and_decides() -> None:
    python = replace(LOST, source="python", drawn_before=False, begins_again=False)
    found = random_finding([(0, LOST), (0, python), (1, RESTORED)], MORE)
    assert (found.value, found.names) == (FacetValue.DIFFERENT, ("rank 0 torch cpu",))
    assert "Left out: rank 0 torch cpu" in found.detail
    assert judge([found]).verdict is VerifyVerdict.DIFFERENT
    many = random_finding([(rank, LOST) for rank in range(4)], MORE).detail
    assert "rank 2 torch cpu and 1 more: as before" in many
    assert "the random states of all ranks" in resume_hint(Facet.RNG, found.value, same_ranks=False)


@pytest.mark.parametrize(
    "certain",
    [
        {"of_ranks": (1,)},  # a rank saved just this
        {"begins_again": False},  # it drew nothing before the stop, or was not there
        {"drawn_after": False},  # no step needs it
        {"ends_alike": True},  # steps seed it anew
    ],
)
def test_what_may_have_lost_nothing_is_never_called_lost(certain: dict[str, object]) -> None:
    assert value(replace(LOST, **certain)) is FacetValue.NOT_CHECKED  # type: ignore[arg-type]


def test_a_restored_state_has_an_owner_and_one_for_several_ranks_is_said() -> None:
    found = random_finding(
        [(0, RESTORED), (1, RESTORED), (2, replace(RESTORED, of_ranks=(1,)))], MORE
    )
    assert found.value is FacetValue.EQUAL_BITWISE
    assert found.detail.endswith(
        "torch cpu: ranks 0 and 1 have that of rank 0 and draw the same numbers, "
        "rank 2 has that of rank 1"
    )


def test_a_state_that_is_nobodys_is_undecided_unless_something_is_lost_for_certain() -> None:
    assert value(RESTORED, UNKNOWN) is FacetValue.INCONCLUSIVE
    assert value(RESTORED, replace(UNKNOWN, ends_alike=True)) is FacetValue.EQUAL_BITWISE
    assert value(LOST, UNKNOWN) is FacetValue.DIFFERENT


def test_nothing_is_said_of_generators_that_nobody_drew_from() -> None:
    found = random_finding([(0, SourceRead(source="numpy", unchanged=True))], MORE)
    assert found.value is FacetValue.NOT_CHECKED
    assert "no step before the stop draws" in found.detail
