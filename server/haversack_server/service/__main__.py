"""The process of a service: ``python -m haversack_server.service``.

SIGTERM and SIGINT drain and end it with 0; a second one ends it at once. Exit 2: an option will
not do. Exit 1: it could not serve.
"""

import asyncio
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
    try:
        asyncio.run(_serve(from_command_line(sys.argv[1:], os.environ)))
    except HaversackError as wrong:
        _say(str(wrong))
        return 2 if isinstance(wrong, InvalidRequestError) else 1
    return 0


async def _serve(process: Process) -> None:
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        told_to_stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    async with serving(process.listen, process.settings) as running:
        _say(_ready(running))
        await told_to_stop.wait()
        _say("drains: running calls may finish")
    _say("stopped")


def _ready(running: Running) -> str:
    host, _, _ = running.target.rpartition(":")
    return f"serves on {running.target}, metrics on http://{host}:{running.metrics_port}/metrics"


def _say(sentence: str) -> None:
    print(f"haversack serve: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
