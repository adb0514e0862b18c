"""``python -m haversack_server.worker``: a zygote that forks jobs, or one job or trace by itself.

Both speak over a socket that they inherit by its number; there is nothing here to call by hand.
"""

import argparse
import importlib
import json
import os
import socket
from collections.abc import Callable
from typing import NoReturn

from haversack_server.leftovers import remove_folder
from haversack_server.verify import records
from haversack_server.worker.confine import confine
from haversack_server.worker.limits import Limits


def main() -> None:
    """Be what the server started."""
    parser = argparse.ArgumentParser(prog="python -m haversack_server.worker", description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--control-fd", type=int, help="socket over which a zygote is told to fork")
    kind.add_argument("--job-fd", type=int, help="socket over which one job gets its order")
    kind.add_argument("--trace-fd", type=int, help="socket over which one trace gets its order")
    kind.add_argument("--plan-fd", type=int, help="socket over which one workload gets its orders")
    parser.add_argument("--limits", type=json.loads, help="limits of the one job, JSON")
    parser.add_argument("--parent", type=int, help="process with whose end the one job ends")
    parser.add_argument("--folder", help="the zygote's folder, which it removes at its end")
    arguments = parser.parse_args()
    if arguments.control_fd is not None:
        _be_zygote(socket.socket(fileno=arguments.control_fd), arguments.folder)
        return
    limits = records.from_json(Limits, arguments.limits)
    if arguments.job_fd is not None:
        _be_job(socket.socket(fileno=arguments.job_fd), limits, arguments.parent)
    elif arguments.plan_fd is not None:
        _be_plan(socket.socket(fileno=arguments.plan_fd), limits)
    else:
        _be_trace(socket.socket(fileno=arguments.trace_fd), limits)


def _be_zygote(control: socket.socket, folder: str) -> None:
    from haversack_server.worker.zygote import Zygote

    try:
        Zygote(control).serve()
    finally:
        # The server does it too; but this process outlives one that is killed.
        remove_folder(folder)


def _be_job(channel: socket.socket, limits: Limits, parent: int | None) -> None:
    # Before: the folder of compiled code is one that no job may write to.
    importlib.import_module("haversack_server.worker.memory_digest")
    # A server is no parent whose end can be watched: the thread that started this process may end
    # before it does.
    isolation = confine(limits, keep=[channel.fileno()], parent=parent)
    from haversack_server.worker.job import serve

    _end_after(lambda: serve(channel, isolation))


def _be_trace(channel: socket.socket, limits: Limits) -> None:
    confine(limits, keep=[channel.fileno()], parent=None)
    from haversack_server.worker.estimate_trace import serve

    _end_after(lambda: serve(channel))


def _be_plan(channel: socket.socket, limits: Limits) -> None:
    confine(limits, keep=[channel.fileno()], parent=None)
    from haversack_server.worker.planning import serve

    _end_after(lambda: serve(channel))


def _end_after(work: Callable[[], None]) -> NoReturn:
    """Do the work and end at once, whatever is left running.

    A device's library may hang in its own end, fake ranks have nobody to say goodbye to, and a
    thread of gloo that drops a tensor while Python ends aborts the process.
    """
    from haversack_server.worker.fork import flush_output, print_fault

    status = 1
    try:
        work()
        status = 0
    except BaseException:  # the stack ends here, as it would by itself
        print_fault()
    finally:
        flush_output()
        os._exit(status)


if __name__ == "__main__":
    main()
