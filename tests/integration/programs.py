"""The command line as a program of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def started(*arguments: str, folder: Path = ROOT, **keywords: Any) -> subprocess.Popen[str]:
    """Start a command in a folder, with what it prints at hand."""
    path = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "haversack.cli", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **keywords,
    )
