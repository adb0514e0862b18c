"""Serves ``/metrics`` over HTTP, in a thread: a slow scrape does not hold up the event loop."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from haversack.errors import HaversackError


@contextlib.asynccontextmanager
async def serving_metrics(registry: CollectorRegistry, host: str, port: int) -> AsyncIterator[int]:
    """Serve a registry while the context lasts; gives the port, which was picked if 0."""
    try:
        server, thread = start_http_server(port, host.strip("[]"), registry)
    except OSError as refused:
        reason = refused.strerror or refused
        raise HaversackError(
            f"cannot serve metrics on {host}:{port}: {reason}; give another --metrics-port"
        ) from refused
    try:
        yield server.server_port
    finally:
        await asyncio.to_thread(_stop, server, thread)


def _stop(server: WSGIServer, thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()
