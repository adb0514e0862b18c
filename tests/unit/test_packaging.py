"""One distribution of three packages: what the wheel holds, what it asks for, what is pinned."""

import configparser
import importlib
import re
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "haversack": ROOT / "client/haversack",
    "haversack_kernels": ROOT / "kernels/haversack_kernels",
    "haversack_server": ROOT / "server/haversack_server",
}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNPINNED_EXTRAS = {"cuda"}  # has no use on a machine without a GPU, where pins are made
LARGEST_WHEEL_BYTES = 1_250_000  # a trainer's environment takes it along; 1.07 MB in 614 files now

every_package = pytest.mark.parametrize("package", PACKAGES)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    with zipfile.ZipFile(built) as archive:
        yield archive


@pytest.fixture(scope="session")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return HeaderParser().parsestr(in_dist_info(wheel, "METADATA"))


def in_dist_info(wheel: zipfile.ZipFile, file: str) -> str:
    """Read one file of the wheel's own description."""
    (name,) = [each for each in wheel.namelist() if each.endswith(f".dist-info/{file}")]
    return wheel.read(name).decode()


def files_of(package: str) -> set[str]:
    """List the files of a package in the work tree, as the wheel should name them."""
    folder = PACKAGES[package]
    return {
        str(file.relative_to(folder.parent))
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@every_package
def test_a_package_tells_type_checkers_that_it_is_typed(package: str) -> None:
    assert (PACKAGES[package] / "py.typed").is_file()


def test_no_folder_around_the_packages_is_a_package_itself() -> None:
    # A package `kernels` or `proto` at the root would shadow others of that name.
    folders = [each for each in ROOT.iterdir() if each.is_dir() and each.name[0] != "."]
    assert [str(each) for each in folders if (each / "__init__.py").exists()] == []
    assert not (ROOT / "__init__.py").exists()


@every_package
def test_every_folder_with_modules_is_a_package(package: str) -> None:
    folders = {
        (PACKAGES[package].parent / file).parent for file in files_of(package) if ".py" in file
    }
    assert {str(each) for each in folders if not (each / "__init__.py").exists()} == set()


def test_the_wheel_holds_three_packages_and_nothing_beside(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in tops if not name.endswith(".dist-info")} == set(PACKAGES)


@every_package
def test_the_wheel_holds_every_file_of_a_package(wheel: zipfile.ZipFile, package: str) -> None:
    held = {name for name in wheel.namelist() if name.startswith(f"{package}/")}
    assert held == files_of(package)


def test_the_wheel_holds_the_stubs_of_every_schema(wheel: zipfile.ZipFile) -> None:
    schemas = [file.stem for file in (ROOT / "proto/haversack/v1").glob("*.proto")]
    wanted = {
        f"haversack/v1/{schema}_pb2{ending}" for schema in schemas for ending in (".py", ".pyi")
    }
    wanted |= {"haversack/v1/service_pb2_grpc.py", "haversack/v1/service_pb2_grpc.pyi"}
    assert wanted <= set(wheel.namelist())


def test_the_wheel_holds_the_tables_that_the_server_reads(wheel: zipfile.ZipFile) -> None:
    tables = {name for name in wheel.namelist() if name.endswith(".json")}
    assert any(name.startswith("haversack_server/memory/") for name in tables)


def test_the_wheel_is_light(wheel: zipfile.ZipFile) -> None:
    assert sum(each.compress_size for each in wheel.infolist()) < LARGEST_WHEEL_BYTES


def test_the_wheel_bears_its_licence_and_its_extras(metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    extras = {"server", "torch", "cuda", "graph", "zoo", "ray", "report", "dev"}
    assert set(metadata.get_all("Provides-Extra", [])) == extras


def test_the_base_install_is_light(metadata: Message) -> None:
    wanted = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    base = {each.name for each in wanted if "extra ==" not in str(each.marker)}
    assert base == {"grpcio", "protobuf", "googleapis-common-protos", "click", "rich"}


def test_the_command_is_there(wheel: zipfile.ZipFile) -> None:
    scripts = configparser.ConfigParser()
    scripts.read_string(in_dist_info(wheel, "entry_points.txt"))
    module, _, function = scripts["console_scripts"]["haversack"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def pins() -> dict[str, str]:
    """Read constraints.txt: version by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = (re.fullmatch(r"([\w.-]+)==(\S+)", line) for line in lines if line[:1] != "#")
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def test_every_line_of_the_constraints_is_a_pin_of_any_build() -> None:
    lines = [
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] != "#"
    ]
    assert len(pins()) == len(lines)
    assert [version for version in pins().values() if "+" in version] == []


def test_what_we_ask_for_is_pinned_within_its_range() -> None:
    optional = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"]]
    asked += [text for extra in optional.keys() - UNPINNED_EXTRAS for text in optional[extra]]
    for requirement in map(Requirement, asked):
        pinned = pins()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pinned), f"{requirement} against {pinned}"


def test_the_stubs_floor_is_the_floor_that_we_ask_for() -> None:
    generator = (ROOT / "scripts/generate_stubs.sh").read_text()
    floors = {each.name: str(each.specifier) for each in map(Requirement, PROJECT["dependencies"])}
    version = re.search(r"grpcio-tools==(\S+)", generator)
    assert version is not None
    assert floors["grpcio"] == f">={version[1]}"
