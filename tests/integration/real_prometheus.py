"""A real Prometheus on the loopback, with deploy's own files, for tests.

Needs Debian's package ``prometheus``, which .ci/run installs. Knows nothing of what is asked.
"""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from tests.unit.deploy.dashboard import PROMETHEUS, ROOT

BOUND_S = 180.0  # on a busy machine; each wait ends with its event

Answer = TypeVar("Answer")
# A proxy that the environment names has no business on the loopback.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def eventually(what: str, look: Callable[[], Answer | None]) -> Answer:
    """Look until there is something, within the bound."""
    ends_at = time.monotonic() + BOUND_S
    while time.monotonic() < ends_at:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {BOUND_S:g} s")


def fetch(url: str) -> str:
    """Get a page of the loopback."""
    with OPENER.open(url, timeout=10) as response:
        return str(response.read().decode())


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program while the context lasts; it gets a chance to stop by itself."""
    path = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        program = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
        )
    try:
        yield program
    finally:
        program.send_signal(signal.SIGTERM)
        try:
            program.wait(timeout=60)
        finally:
            program.kill()
            program.wait()


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """Ask the HTTP API; gives the data of its answer."""
        answer = json.loads(fetch(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def samples(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Evaluate an expression now; gives the samples that are numbers."""
        result = self.get("query", query=expr)["result"]
        found = [(each["metric"], float(each["value"][1])) for each in result]
        return [(labels, value) for labels, value in found if math.isfinite(value)]

    def scrapes(self) -> float:
        """Count how often the server was scraped."""
        return sum(value for _, value in self.samples('count_over_time(up{job="haversack"}[1h])'))

    def wait_for_scrapes(self, count: int) -> None:
        """Wait until the server was scraped as often again."""
        wanted = self.scrapes() + count
        eventually("a scrape", lambda: self.scrapes() >= wanted)


def adapted(metrics_url: str, folder: Path) -> Path:
    """Write deploy's configuration with the ports of this run, and a scrape each second."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PROMETHEUS / each) for each in config["rule_files"]]
    jobs = {each["job_name"]: each for each in config["scrape_configs"]}
    place = urllib.parse.urlparse(metrics_url).netloc
    jobs["haversack"]["static_configs"] = [{"targets": [place]}]
    config["scrape_configs"] = [jobs["haversack"]]
    written = folder / "prometheus.yml"
    written.write_text(yaml.safe_dump(config))
    return written


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])
