"""The process of a service: ``python -m haversack_server.service``.

SIGTERM and SIGINT drain and end it with 0, also while its kernels are compiled; a second one ends
it at once. Exit 2: an option will not do. Exit 1: it could not serve.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys

import prometheus_client

from haversack.errors import HaversackError, InvalidRequestError
from haversack_server.service.app import Running, serving
from haversack_server.service.settings import Process, from_command_line


def main() -> int:
    """Serve until told to stop; gives the exit code."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # They are a second series for every counter, which nobody reads.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    _tell_of_compilation()
    try:
        has_served = asyncio.run(_serve(from_command_line(sys.argv[1:], os.environ)))
    except HaversackError as wrong:
        _say(str(wrong))
        return 2 if isinstance(wrong, InvalidRequestError) else 1
    if not has_served:
        os._exit(0)  # a thread that compiles is in code that the end of Python may not unwind
    return 0


def _tell_of_compilation() -> None:
    """Say why a first start takes its time."""
    kernels = logging.getLogger("haversack_kernels.cache")
    kernels.addHandler(_Sayer())
    kernels.setLevel(logging.INFO)
    kernels.propagate = False


class _Sayer(logging.Handler):
    """Says what a log says, as the process's own words."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(record.getMessage())


async def _serve(process: Process) -> bool:
    """Serve until told to stop; gives whether it came to that, or was told while it started."""
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        told_to_stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    async with contextlib.AsyncExitStack() as stack:
        starting = asyncio.create_task(
            stack.enter_async_context(serving(process.listen, process.settings))
        )
        stopping = asyncio.create_task(told_to_stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        has_served = starting.done()
        if has_served:
            # What is loaded stays, so no collection looks at it again: a sixth of an estimate.
            gc.freeze()
            _say(_ready(await starting))
            await stopping
            _say("drains: running calls may finish")
        else:
            # It answers from before its kernels are compiled, so calls may run here too.
            _say("drains before it was ready: running calls may finish")
            starting.cancel()
            await asyncio.wait((starting,))
    _say("stopped")
    return has_served


def _ready(running: Running) -> str:
    host, _, _ = running.target.rpartition(":")
    return f"serves on {running.target}, metrics on http://{host}:{running.metrics_port}/metrics"


def _say(sentence: str) -> None:
    print(f"haversack serve: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
