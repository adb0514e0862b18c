"""The compose file and the image: kept on a short lead, and naming each other rightly."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder
from tests.unit.deploy.dashboard import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()

every_service = pytest.mark.parametrize("name", SERVICES)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment in the repository's root."""
    program = Path(sys.executable).parent / command[0]
    return subprocess.run(
        [program, *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_compose_takes_the_file() -> None:
    done = run("docker-compose", "config", "--quiet")
    assert done.returncode == 0, done.stderr


def test_compose_would_name_a_key_that_it_does_not_know(tmp_path: Path) -> None:
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text((ROOT / "docker-compose.yml").read_text() + "\nvolums: {}\n")
    done = run("docker-compose", "--file", str(wrong), "config", "--quiet")
    assert done.returncode != 0
    assert "volums" in done.stderr


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = run("hadolint", "deploy/Dockerfile")
    assert done.returncode == 0, done.stdout


@every_service
def test_an_image_is_pinned(name: str) -> None:
    image = SERVICES[name].get("image", "")
    if "build" in SERVICES[name]:
        bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
        assert all(re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base) for base in bases)
    else:
        assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", image)


@every_service
def test_a_service_is_held_on_a_short_lead(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert int(service["user"]) > 0


@every_service
def test_a_port_is_open_to_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


@every_service
def test_a_service_is_asked_for_its_health(name: str) -> None:
    described = SERVICES[name].get("healthcheck", {}).get("test")
    assert described or ("build" in SERVICES[name] and "\nHEALTHCHECK " in DOCKERFILE)


@every_service
def test_what_is_mounted_is_there_and_what_is_written_is_named(name: str) -> None:
    for volume in SERVICES[name]["volumes"]:
        source, *_, mode = volume.split(":")
        if source.startswith("./"):
            assert (ROOT / source).is_dir()
            assert mode == "ro"
        else:
            assert source in COMPOSE["volumes"]


def test_prometheus_scrapes_the_port_that_the_image_serves_metrics_on() -> None:
    command = re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert command is not None
    arguments = yaml.safe_load(command[1])
    port = arguments[arguments.index("--metrics-port") + 1]
    jobs = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = {each["job_name"]: each["static_configs"][0]["targets"] for each in jobs}
    assert targets["haversack"] == [f"server:{port}"]
    assert "server" in SERVICES


def test_the_image_is_checked_on_the_port_that_it_listens_on() -> None:
    assert '"--listen", "0.0.0.0:50051"' in DOCKERFILE
    assert 'healthcheck.py", "127.0.0.1:50051"]' in DOCKERFILE
    assert "127.0.0.1:50051:50051" in SERVICES["server"]["ports"]


def copied() -> set[str]:
    """List what the Dockerfile takes from the work tree."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
    return {source for line in lines for source in line.split()[:-1]}


def test_the_builder_is_sent_what_the_dockerfile_copies() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert copied() == {line[1:] for line in lines if line[:1] == "!"}


def test_what_is_copied_is_enough_to_build_the_wheel(tmp_path: Path) -> None:
    for source in copied() - {"deploy/healthcheck.py"}:
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / source)
    (built,) = WheelBuilder(str(tmp_path)).build(directory=str(tmp_path / "wheel"))
    (whole,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path / "whole"))
    with zipfile.ZipFile(built) as ours, zipfile.ZipFile(whole) as theirs:
        names = {name for name in ours.namelist() if "__pycache__" not in name}
        assert names == set(theirs.namelist())
