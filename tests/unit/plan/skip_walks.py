"""Profiles with tensors that skip over blocks, drawn, and their plans walked through by hand."""

from typing import Any

from hypothesis import strategies as st
from tests.unit.plan.test_profiled import block

from haversack.plan import Plan
from haversack.profile import OptionTable, Profile, SkipKeeper, SkipTensor

SIZES = st.integers(0, 30)
WAYS = ("save", "recompute", "selective aten.mm.default:0")
SKIP = 40


def table(saved: int, again: int, policy: int, **fields: Any) -> OptionTable:
    """A table whose figures all have what may skip over blocks, as a maker's have."""
    return OptionTable(
        option=WAYS,
        retained_bytes=(SKIP + saved, SKIP + again, SKIP + policy),
        **{
            "forward_peak_bytes": (SKIP + saved + 5, SKIP + again + 9, SKIP + policy + 7),
            "backward_peak_bytes": (SKIP + saved + 8, SKIP + saved + 12, SKIP + saved + 10),
            "extra_ns": (0, 10, 4),
            **fields,
        },
    )


@st.composite
def skips(draw: st.DrawFn, blocks: int) -> SkipTensor:
    maker = draw(st.integers(0, blocks - 2))
    kept_from = draw(st.none() | st.integers(maker + 1, blocks - 1))
    read_until = blocks - 1 if kept_from is not None else draw(st.integers(maker, blocks - 1))
    last = read_until if kept_from is None else kept_from - 1
    places = draw(st.sets(st.integers(maker, last), max_size=3))
    named = st.sets(st.sampled_from(WAYS), min_size=1, max_size=2)
    return SkipTensor(
        size_bytes=draw(st.integers(1, SKIP // 2)),
        maker=maker,
        read_until=read_until,
        kept_from=kept_from,
        keepers=tuple(SkipKeeper(block=each, option=tuple(draw(named))) for each in places),
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    blocks = draw(st.integers(2, 5))
    tables = [
        table(
            30 + draw(SIZES),
            draw(SIZES),
            15 + draw(SIZES),
            extra_ns=(0, 1 + draw(SIZES), draw(SIZES)),
        )
        for _ in range(2)
    ]
    found = [draw(skips(blocks)) for _ in range(draw(st.integers(1, 3)))]
    makers = [each.maker for each in found]
    return Profile(
        blocks=tuple(block(f"layers.{i}", draw(st.integers(0, 1))) for i in range(blocks)),
        tables=tuple(tables),
        skip_tensors=tuple(each for each in found if makers.count(each.maker) <= 2),
    )


def walked(profile: Profile, chosen: tuple[int, ...]) -> int:
    """Walk through a step: what is retained before each block, without what is gone."""
    tables = [profile.tables[each.table] for each in profile.blocks]
    standing = sum(each.parameter_bytes for each in profile.blocks)
    moments = [standing + sum(each.gradient_bytes for each in profile.blocks)]
    retained = [own.retained_bytes[row] for own, row in zip(tables, chosen, strict=True)]
    held: list[set[int]] = [set() for _ in profile.skip_tensors]
    for place, (own, row) in enumerate(zip(tables, chosen, strict=True)):
        gone = 0
        for tensor, holders in zip(profile.skip_tensors, held, strict=True):
            if keeps(tensor, place, own.option[row]):
                holders.add(place)
            if tensor.read_until < place and not holders:
                gone += tensor.size_bytes
        live = standing + sum(retained[:place]) - gone
        moments.append(live + own.forward_peak_bytes[row])
    made = 0
    for place in reversed(range(len(chosen))):
        gone = 0
        for tensor, holders in zip(profile.skip_tensors, held, strict=True):
            gone += tensor.size_bytes if tensor.maker < place and not holders else 0
            holders.discard(place)
        live = standing + made + sum(retained[:place]) - gone
        moments.append(live + tables[place].backward_peak_bytes[chosen[place]])
        made += profile.blocks[place].gradient_bytes
    return max(moments)


def keeps(tensor: SkipTensor, place: int, option: str) -> bool:
    if tensor.kept_from is not None and place >= tensor.kept_from:
        return True
    return any(each.block == place and option in each.option for each in tensor.keepers)


def chosen_by(answer: Plan, profile: Profile) -> tuple[int, ...]:
    pairs = zip(profile.blocks, answer.actions, strict=True)
    return tuple(profile.tables[each.table].option.index(action.option) for each, action in pairs)
