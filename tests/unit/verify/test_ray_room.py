"""The placement group of ranks on a cluster that is played: taken once, and never left behind."""

import asyncio
from dataclasses import replace

import pytest
from tests.unit.verify.played_ray import Joined, LostError, Ray, joining

from haversack_server.places import Start
from haversack_server.processes import NotStartedError


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Joined:
    return joining(monkeypatch)


RANKS = Start(job_id="j", device="cuda:0", deadline_ns=1, threads=2, ranks=2)
TWO_GPUS = ({"CPU": 4.0, "GPU": 2.0},)


async def test_ranks_have_a_group_of_their_own_until_the_process_is_closed(place: Joined) -> None:
    ray = Ray(machines=TWO_GPUS, lost=1)
    process = await place(ray).start(RANKS)
    bundle = {"CPU": 4, "GPU": 2}
    assert ray.util.made == [([bundle], "STRICT_PACK", "haversack-j")]
    # The actor that takes the place of a lost one takes its room too.
    assert [each["scheduling_strategy"] for each in ray.asked] == [("haversack-j", 0)] * 2
    assert (ray.asked[1]["num_cpus"], ray.asked[1]["num_gpus"]) == (4, 2)
    assert ray.util.left == ["haversack-j"]
    await process.close()
    assert (ray.util.left, ray.killed) == ([], 2)


async def test_one_process_with_several_gpus_needs_no_group(place: Joined) -> None:
    ray = Ray(machines=TWO_GPUS)
    await place(ray).start(replace(RANKS, ranks=1, device_count=2))
    assert (ray.asked[0]["num_cpus"], ray.asked[0]["num_gpus"]) == (2, 2)
    assert ray.util.made == []


async def test_a_process_that_cannot_be_killed_leaves_its_room(
    place: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, *, no_restart: bool) -> None:
        raise LostError(f"no head, {no_restart}")

    ray = Ray(machines=TWO_GPUS)
    process = await place(ray).start(RANKS)
    monkeypatch.setattr(ray, "kill", refuse)
    with pytest.raises(LostError):
        await process.close()
    assert ray.util.left == []


async def test_no_group_is_left_of_ranks_that_do_not_start(place: Joined) -> None:
    ray = Ray(machines=TWO_GPUS, lost=2)
    with pytest.raises(NotStartedError, match="2 workers of the cluster"):
        await place(ray).start(RANKS)
    assert (len(ray.util.made), ray.util.left) == (1, [])
    few = Ray()
    with pytest.raises(NotStartedError, match=r"has 4 CPU and 2 GPU, .* 4 CPU and 1 GPU$"):
        await place(few).start(RANKS)
    assert few.util.made == []


@pytest.mark.parametrize("failure", [None, LostError("no head"), ValueError("no such group")])
async def test_no_group_is_left_of_a_job_that_is_cancelled_while_it_is_made(
    place: Joined, failure: Exception | None
) -> None:
    ray = Ray(machines=TWO_GPUS)
    ray.util.failure = failure
    ray.util.is_slow.clear()
    starting = asyncio.create_task(place(ray).start(RANKS))
    while not ray.util.made:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    starting.cancel()
    await asyncio.sleep(0)
    ray.util.is_slow.set()
    await asyncio.wait((starting,))
    assert (starting.cancelled(), ray.util.left, ray.asked) == (True, [], [])
