"""What a job's process may still do, as the kernel says inside it."""

import json
import pathlib
import resource
from typing import NoReturn

LIMITS = {
    "processor": resource.RLIMIT_CPU,
    "file": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
}


def tells_what_it_may() -> NoReturn:
    """Raise it: what a factory raises is in its report."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    found = {
        "no_new_privileges": int(status["NoNewPrivs"]),
        "capabilities": {kind: int(status[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Inh")},
        "limits": {name: resource.getrlimit(which) for name, which in LIMITS.items()},
    }
    raise ValueError(json.dumps(found))
