"""Nothing runs on for a caller that has gone."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from haversack.errors import UnavailableError
from haversack_server.service.threads import Threads

PATIENCE_S = 60.0


@pytest.fixture
async def one_thread() -> AsyncIterator[Threads]:
    threads = Threads("test", 1)
    yield threads
    await threads.close(PATIENCE_S)


async def begun(work_began: threading.Event) -> None:
    assert await asyncio.to_thread(work_began.wait, 10)


async def test_work_gives_its_answer_and_its_error(one_thread: Threads) -> None:
    assert await one_thread.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await one_thread.run(lambda: 1 // 0)


async def test_a_cancelled_call_ends_after_its_work_was_told_to_stop(one_thread: Threads) -> None:
    began, told, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        assert told.wait(10)
        ended.set()
        raise RuntimeError("stopped: an error that nobody waits for")

    call = asyncio.create_task(one_thread.run(work, stop=told.set))
    await begun(began)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended.is_set()


async def test_work_that_waits_for_a_thread_never_begins_once_cancelled(
    one_thread: Threads,
) -> None:
    began, release = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        began.set()
        assert release.wait(10)
        done.append("first")

    running = asyncio.create_task(one_thread.run(first))
    await begun(began)
    waiting = asyncio.create_task(one_thread.run(lambda: done.append("second")))
    await asyncio.sleep(0)  # until it is in the queue
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    await running
    await one_thread.run(lambda: done.append("third"))
    assert done == ["first", "third"]


async def test_closing_tells_what_runs_to_stop_and_drops_what_waits(one_thread: Threads) -> None:
    began, told = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        began.set()
        assert told.wait(10)
        done.append("first")

    running = asyncio.create_task(one_thread.run(first, stop=told.set))
    await begun(began)
    waiting = asyncio.create_task(one_thread.run(lambda: done.append("second")))
    await asyncio.sleep(0)  # until it is in the queue
    await one_thread.close(PATIENCE_S)
    await running
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["first"]
    with pytest.raises(UnavailableError, match="the server stops"):
        await one_thread.run(lambda: done.append("third"))


async def test_work_that_does_not_stop_is_left_behind_with_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = Threads("deaf", 1)
    began, release = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        release.wait()

    call = asyncio.create_task(threads.run(work))
    await begun(began)
    call.cancel()  # it now waits for its thread
    await asyncio.sleep(0)
    try:
        await threads.close(0.0)
        assert call.cancelled()
        assert "deaf: 1 still at work" in caplog.text
        assert all(each.daemon for each in threading.enumerate() if each.name.startswith("deaf"))
    finally:
        release.set()
