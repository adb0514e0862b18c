"""A server inside this process, for a caller that names none.

The import of the server waits until it is needed: a light install has no numpy.
"""

import asyncio
import atexit
import contextlib
import importlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from haversack.errors import HaversackError, MissingExtraError

if TYPE_CHECKING:
    from haversack_server.service.app import Running

Server = AbstractAsyncContextManager["Running"]
AFTER_A_FORK = (
    "start a fresh process, such as one of multiprocessing's spawn, or close the client before "
    "the fork"
)
LONGEST_SOCKET_PATH = 103  # bytes, on macOS; Linux takes 107

_END_TASKS_S = 2.0  # they have nothing left to do but to end

_opened_in: list[int] = []  # the process of every server that is open; a fork copies it


def server_app(otherwise: str = ", or name a running server") -> Callable[..., Server]:
    """Import the server, or say which extra is missing; ``otherwise`` is what would do instead."""
    try:
        from haversack_server.service.app import serving_embedded
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("haversack"):
            raise  # a fault of ours, not a light install
        raise MissingExtraError(
            f"a server in this process needs {missing.name}: pip install 'haversack[server]'"
            f"{otherwise}"
        ) from missing
    return serving_embedded


@contextlib.contextmanager
def embedded_server(allow: Sequence[str] = ()) -> Iterator[str]:
    """Serve on a socket in a private folder; gives the target to connect to.

    ``allow`` are the dotted prefixes under which Verify jobs may import workloads, from the
    current folder too. Raises HaversackError in a process that was forked while a server ran: gRPC
    would abort or hang there.
    """
    _refuse_after_a_fork()
    serving = server_app()
    with contextlib.ExitStack() as stack:
        _opened_in.append(os.getpid())
        stack.callback(_only_here(lambda: _opened_in.remove(os.getpid())))
        # A socket, not a port: no other user reaches it and no http_proxy setting diverts it.
        folder = tempfile.mkdtemp(prefix="haversack-")
        stack.callback(_only_here(lambda: shutil.rmtree(folder, ignore_errors=True)))
        _at_exit(stack.close)
        socket = f"{folder}/socket"
        fits = len(os.fsencode(socket)) <= LONGEST_SOCKET_PATH
        server = serving(f"unix:{socket}" if fits else "127.0.0.1:0", allow=tuple(allow))
        loop = _started_loop(stack)
        running = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        stack.callback(_only_here(lambda: _stop(server, loop)))
        yield running.target


def _refuse_after_a_fork() -> None:
    here = os.getpid()
    elsewhere = [process for process in _opened_in if process != here]
    if elsewhere:
        raise HaversackError(
            f"process {here} was forked from process {elsewhere[0]} while a server ran inside "
            f"that one, and can have none itself; {AFTER_A_FORK}"
        )


def _started_loop(stack: contextlib.ExitStack) -> asyncio.AbstractEventLoop:
    # A loop of its own: the blocking client holds this thread while the server answers.
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="haversack-embedded", daemon=True)
    thread.start()

    def stop() -> None:
        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result()
        # Closing a loop does not wait for its threads, and a caller may count those that are left.
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    stack.callback(_only_here(stop))
    return loop


async def _end_tasks() -> None:
    """Cancel what is left of a call that was given up; a loop says so of tasks that it drops."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_END_TASKS_S)


def _stop(server: Server, loop: asyncio.AbstractEventLoop) -> None:
    stopped = server.__aexit__(None, None, None)
    asyncio.run_coroutine_threadsafe(stopped, loop).result()


def _at_exit(close: Callable[[], object]) -> None:
    """Close for a caller that never leaves the block (a notebook); twice does no harm.

    Before pools of threads end, which closing needs: ``atexit`` alone comes after them.
    """
    # The last to register is the first to be called, and pools register when they are imported.
    importlib.import_module("concurrent.futures.thread")
    register = getattr(threading, "_register_atexit", atexit.register)
    register(close)


def _only_here(clean: Callable[[], object]) -> Callable[[], None]:
    """Clean up in this process, and not in one forked from it, where no thread of ours runs."""
    made_in = os.getpid()

    def clean_here() -> None:
        if os.getpid() == made_in:
            clean()

    return clean_here
