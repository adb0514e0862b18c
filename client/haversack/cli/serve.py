"""``haversack serve``: checks what can be checked here, then becomes the server's process."""

import os
import sys

import click

from haversack.cli import options
from haversack.cli.command import AnswerCommand
from haversack.cli.option_types import Address, AutoOrOff, LocalOrRay, Port, Seconds, Whole
from haversack.reading import refuse, shown

_SERVICE = "haversack_server.service"
_OPTIONS = [
    options.option(
        "Service",
        "--listen",
        field="listen",
        about="Where to answer calls; port 0 picks a free one. Default: HAVERSACK_LISTEN, else "
        "127.0.0.1:50051.",
        type=Address(),
    ),
    options.option(
        "Service",
        "--metrics-port",
        field="metrics_port",
        about="Port of /metrics, for Prometheus; 0 picks a free one. Default: "
        "HAVERSACK_METRICS_PORT, else 9464.",
        type=Port(),
    ),
    options.option(
        "Service",
        "--allow",
        field="allow",
        about="Dotted prefix of modules that Verify jobs may run, such as mypkg. (with its dot), "
        "found on the server's import path (PYTHONPATH); may be repeated. Default: "
        "HAVERSACK_ALLOW, else built-in workloads only.",
        metavar="PREFIX",
        multiple=True,
    ),
    options.option(
        "Service",
        "--weights-dir",
        field="weights_dir",
        about="Folder in which Verify jobs may read weights (safetensors); may be repeated. "
        "Default: HAVERSACK_WEIGHTS_DIR, else none.",
        metavar="FOLDER",
        multiple=True,
    ),
    options.option(
        "Service",
        "--max-in-flight",
        field="max_in_flight",
        about="Calls that may be under way at once; more are told when to come back. Default: "
        "HAVERSACK_MAX_IN_FLIGHT, else 64.",
        type=Whole(),
    ),
    options.option(
        "Service",
        "--grace",
        field="grace",
        about="Seconds that running calls may take to finish after SIGTERM. Default: "
        "HAVERSACK_GRACE, else 20.",
        type=Seconds(),
    ),
    options.option(
        "Service",
        "--cuda",
        field="cuda",
        about="Solve on the CUDA device where that is faster, if one is attached, or never. "
        "Default: HAVERSACK_CUDA, else auto.",
        type=AutoOrOff(),
    ),
    options.option(
        "Verify's reports",
        "--state-dir",
        field="state_dir",
        about="Folder in which jobs and reports are kept across a restart; a job that ran then is "
        "LOST. Default: HAVERSACK_STATE_DIR, else they are kept in memory only.",
        metavar="FOLDER",
    ),
    options.option(
        "Verify's reports",
        "--keep-reports",
        field="keep_reports",
        about="Reports that are kept, the latest. Default: HAVERSACK_KEEP_REPORTS, else 256.",
        type=Whole(),
    ),
    options.option(
        "Verify's reports",
        "--keep-days",
        field="keep_days",
        about="Days that a report is kept. Default: HAVERSACK_KEEP_DAYS, else 30.",
        metavar="DAYS",
        type=float,
    ),
    options.option(
        "Verify's jobs",
        "--executor",
        field="executor",
        about="Where Verify's jobs run: on this machine, or on those of a Ray cluster (extra ray). "
        "Default: HAVERSACK_EXECUTOR, else local.",
        type=LocalOrRay(),
    ),
    options.option(
        "Verify's jobs",
        "--ray-address",
        field="ray_address",
        about="Head of the Ray cluster. Default: HAVERSACK_RAY_ADDRESS, else the cluster that this "
        "machine belongs to.",
        type=Address(),
    ),
]


@click.command(cls=AnswerCommand, short_help="Serve Estimate, Plan and Verify over gRPC.")
@options.all_of(_OPTIONS)
def serve(
    allow: tuple[str, ...], weights_dir: tuple[str, ...], **given: str | float | None
) -> None:
    """Serve Estimate, Plan and Verify over gRPC, with health, reflection and metrics.

    Kernels are compiled before the service says that it is ready; SIGTERM drains it.

    \b
    Example:
      haversack serve --listen 0.0.0.0:50051 --metrics-port 9464
    """
    from haversack import _embedded

    _check_folders(given["state_dir"], weights_dir)
    _embedded.server_app(otherwise="")  # on a light install this says which extra is missing
    arguments = []
    for name, value in given.items():
        if value is not None:  # what is not given is the service's to choose
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    for prefix in allow:
        arguments += ["--allow", prefix]
    for folder in weights_dir:
        arguments += ["--weights-dir", os.path.abspath(folder)]
    sys.stdout.flush()
    # The service's own process from here on: signals reach it directly.
    os.execv(sys.executable, [sys.executable, "-m", _SERVICE, *arguments])


def _check_folders(state_dir: str | float | None, weights_dirs: tuple[str, ...]) -> None:
    """Refuse a folder whose name is empty, as of a variable that is not set, or that is none."""
    if state_dir == "":
        refuse("the path is empty; give a folder, or leave it out", "state_dir")
    for folder in weights_dirs:
        if not os.path.isdir(folder):
            named = shown(folder) or "an empty path"
            refuse(f"{named} is no folder; give one that is there", "weights_dir")
