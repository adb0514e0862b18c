"""One trace: take an order, run it, send what was found. One per process, which then ends."""

import socket
import traceback

from haversack_server.estimate.trace import TraceFound, TraceOrder
from haversack_server.verify import frames, records


def serve(channel: socket.socket) -> None:
    """Take an order and send its figures, or why there are none."""
    message = frames.receive(channel)
    if message is None:
        return  # the server went away
    frames.send(channel, records.to_json(_found(records.from_json(TraceOrder, message))))


def _found(order: TraceOrder) -> TraceFound:
    try:
        from haversack_server.worker.fully_shard import trace
    except ImportError as missing:
        install = "pip install 'haversack[server,torch,zoo]'"
        return TraceFound(failure=f"a trace needs torch and transformers: {missing}; {install}")
    try:
        return trace(order)
    except Exception as error:  # whatever the model's own code raises is the answer
        traceback.print_exc()
        return TraceFound(failure=f"{type(error).__name__}: {str(error)[:300]}")
