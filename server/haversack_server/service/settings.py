"""What an operator may set: the command line, with the environment as its default.

Knows the names, the ranges and the defaults; nothing of how they are used.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from haversack.errors import InvalidRequestError, Violation, check

LARGEST_PORT = 65_535
MOST_REPORTS = 10_000  # all are held in memory
NS_OF_DAY = 86_400 * 10**9
LOCAL, RAY = "local", "ray"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How a server runs. The defaults are those of a server inside a caller's process.

    ``allow`` are dotted prefixes of entry points that Verify jobs may import, and ``worker_path``
    folders that their processes import from; in ``weights_dirs`` they may read weights. ``grace_s``
    is how long running calls may take to finish once the server stops. No metrics are served
    without a ``metrics_port``; 0 picks one. With ``cuda`` large solves may run on the CUDA device,
    if one is attached; inside a caller's process they do not, for its memory is the caller's.
    Verify's reports are kept in memory, and in ``state_dir`` if it names a folder: ``keep_reports``
    of them, for ``keep_days``. Verify's jobs run on this machine, or with the ``executor`` "ray" on
    the cluster at ``ray_address``, which is this machine's own if it is empty.
    """

    allow: tuple[str, ...] = ()
    weights_dirs: tuple[str, ...] = ()
    worker_path: tuple[str, ...] = ()
    metrics_port: int | None = None
    max_in_flight: int = 64
    grace_s: float = 1.0
    solver_threads: int = os.cpu_count() or 1
    reflection: bool = False
    warm: bool = False
    cuda: bool = False
    state_dir: str = ""
    keep_reports: int = 256
    keep_days: float = 30.0
    executor: str = LOCAL
    ray_address: str = ""

    def __post_init__(self) -> None:
        found: list[Violation] = []
        if self.max_in_flight < 1:
            sentence = f"{self.max_in_flight} is too small; 1 or more would do"
            found.append(Violation("max_in_flight", sentence))
        if not 0 <= self.grace_s <= 86_400:
            sentence = f"{self.grace_s:g} will not do; give 0 to 86400 seconds"
            found.append(Violation("grace", sentence))
        if not 0 <= self.keep_reports <= MOST_REPORTS:
            sentence = f"{self.keep_reports} will not do; give 0 to {MOST_REPORTS}"
            found.append(Violation("keep_reports", sentence))
        if not 0 <= self.keep_days <= 36_500:
            sentence = f"{self.keep_days:g} will not do; give 0 to 36500 days"
            found.append(Violation("keep_days", sentence))
        found += _executor_violations(self.executor, self.ray_address)
        check(found)


def _executor_violations(executor: str, ray_address: str) -> list[Violation]:
    if executor not in (LOCAL, RAY):
        return [Violation("executor", f"{executor!r} will not do; give {LOCAL} or {RAY}")]
    if ray_address and executor != RAY:
        sentence = f"{ray_address!r} is of no use to executor {executor}; give executor {RAY} too"
        return [Violation("ray_address", sentence)]
    return []


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """What the process of a service is started with."""

    listen: str
    settings: Settings


def from_command_line(arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
    """Read the settings of a service.

    An option wins over the environment's ``HAVERSACK_...`` variable, which wins over the default.
    Raises InvalidRequestError naming the option.
    """
    given = _parser(environment).parse_args(arguments)
    split_address(given.listen, "listen")
    settings = Settings(
        allow=_all_of(given.allow, environment.get("HAVERSACK_ALLOW", "")),
        weights_dirs=_all_of(given.weights_dir, environment.get("HAVERSACK_WEIGHTS_DIR", "")),
        metrics_port=_port(str(given.metrics_port), "metrics_port"),
        max_in_flight=given.max_in_flight,
        grace_s=given.grace,
        reflection=True,
        warm=True,
        cuda=_is_auto(given.cuda, "cuda"),
        state_dir=given.state_dir,
        keep_reports=given.keep_reports,
        keep_days=given.keep_days,
        executor=given.executor,
        ray_address=given.ray_address,
    )
    return Process(listen=given.listen, settings=settings)


def _all_of(given: list[str] | None, in_environment: str) -> tuple[str, ...]:
    """Take what options repeat, else what commas separate in the environment."""
    return tuple(filter(None, in_environment.split(","))) if given is None else tuple(given)


def split_address(address: str, field: str) -> tuple[str, int]:
    """Split HOST:PORT; the host is as it was written, an IPv6 one in its brackets."""
    host, _, port = address.rpartition(":")
    has_brackets = host.startswith("[") and host.endswith("]")
    if not host or host == "unix" or (":" in host and not has_brackets):
        sentence = f"{address!r} is not HOST:PORT; 127.0.0.1:50051 or [::1]:50051 would do"
        raise InvalidRequestError(sentence, field=field)
    return host, _port(port, field)


_Default = Callable[[str, str], str]  # of a variable of the environment, and what it is otherwise


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise where argparse would print its usage and exit."""
        raise InvalidRequestError(message)


def _parser(environment: Mapping[str, str]) -> _Parser:
    def default(name: str, otherwise: str) -> str:
        return environment.get(f"HAVERSACK_{name}") or otherwise

    parser = _Parser(
        prog="python -m haversack_server.service",
        description="Serve Estimate, Plan and Verify over gRPC. Every option has a variable of "
        "its name in the environment: --max-in-flight is HAVERSACK_MAX_IN_FLIGHT.",
    )
    _add_addresses(parser, default)
    _add_allowed(parser)
    _add_work(parser, default)
    _add_keeping(parser, default)
    _add_executor(parser, default)
    return parser


def _add_addresses(parser: argparse.ArgumentParser, default: _Default) -> None:
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=default("LISTEN", "127.0.0.1:50051"),
        help="where to answer calls; port 0 picks a free one (%(default)s)",
    )
    parser.add_argument(
        "--metrics-port",
        metavar="PORT",
        default=default("METRICS_PORT", "9464"),
        help="port of /metrics on the same host; 0 picks a free one (%(default)s)",
    )


def _add_allowed(parser: argparse.ArgumentParser) -> None:
    # No defaults: the environment's are split at commas, once it is known that no option is given.
    parser.add_argument(
        "--allow",
        metavar="PREFIX",
        action="append",
        help="dotted prefix of entry points that Verify may import; may be repeated, or "
        "separated by commas in the environment (none: built-in workloads only)",
    )
    parser.add_argument(
        "--weights-dir",
        metavar="FOLDER",
        action="append",
        help="folder in which Verify may read weights, safetensors alone; may be repeated, or "
        "separated by commas in the environment (none)",
    )


def _add_work(parser: argparse.ArgumentParser, default: _Default) -> None:
    parser.add_argument(
        "--max-in-flight",
        metavar="N",
        type=int,
        default=default("MAX_IN_FLIGHT", "64"),
        help="calls of Estimate, Plan and Verify that may be under way at once (%(default)s)",
    )
    parser.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        default=default("GRACE", "20"),
        help="how long running calls may take to finish after SIGTERM (%(default)s)",
    )
    parser.add_argument(
        "--cuda",
        metavar="auto|off",
        default=default("CUDA", "auto"),
        help="solve on the CUDA device where that is faster, if one is attached (%(default)s)",
    )


def _add_keeping(parser: argparse.ArgumentParser, default: _Default) -> None:
    parser.add_argument(
        "--state-dir",
        metavar="FOLDER",
        default=default("STATE_DIR", ""),
        help="where Verify's jobs and reports are kept across a restart (none: in memory only)",
    )
    parser.add_argument(
        "--keep-reports",
        metavar="N",
        type=int,
        default=default("KEEP_REPORTS", "256"),
        help="reports of Verify that are kept, the latest (%(default)s)",
    )
    parser.add_argument(
        "--keep-days",
        metavar="DAYS",
        type=float,
        default=default("KEEP_DAYS", "30"),
        help="how long a report of Verify is kept (%(default)s)",
    )


def _add_executor(parser: argparse.ArgumentParser, default: _Default) -> None:
    parser.add_argument(
        "--executor",
        metavar="local|ray",
        default=default("EXECUTOR", LOCAL),
        help="where Verify's jobs run: this machine, or a Ray cluster (%(default)s)",
    )
    parser.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        default=default("RAY_ADDRESS", ""),
        help="head of the Ray cluster (that to which this machine belongs)",
    )


def _is_auto(text: str, field: str) -> bool:
    if text not in ("auto", "off"):
        raise InvalidRequestError(f"{text!r} will not do; give auto or off", field=field)
    return text == "auto"


def _port(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > LARGEST_PORT:
        sentence = f"{text!r} is not a port; give 0 to {LARGEST_PORT}"
        raise InvalidRequestError(sentence, field=field)
    return int(text)
