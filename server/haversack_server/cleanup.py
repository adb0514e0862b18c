"""Clean-up that nothing breaks off. Knows nothing of jobs."""

import asyncio
from collections.abc import Awaitable
from typing import Any


async def to_its_end(work: Awaitable[Any]) -> None:
    """Do work that a cancellation must not break off; one that came meanwhile is raised then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as meanwhile:
            cancelled = meanwhile
    if cancelled is not None:
        raise cancelled
    task.result()
