"""The working folder that ranks share: as it was before each run, and looked at once."""

import pathlib
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.verify.outcome import Outcome
from haversack_server.verify.ranks import RankOutcome, merged
from haversack_server.worker.effects import OPENED, Effects
from haversack_server.worker.shared_folder import SharedFolder


def two_ranks() -> list[RankOutcome]:
    outcome = Outcome(stage="plain", state={"printed text": "0 characters"})
    return [RankOutcome(rank=rank, outcome=outcome) for rank in range(2)]


def test_every_run_of_ranks_finds_the_folder_as_the_factory_left_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kept.txt").write_text("factory")
    shared = SharedFolder(tmp_path)
    told = []
    for _ in range(2):
        shared.put_back()
        assert [each.name for each in tmp_path.iterdir()] == ["kept.txt"]
        (tmp_path / "log1.txt").write_text("step")
        told.append(shared.looked_at(two_ranks()))
    assert told[0] == told[1]
    assert merged(told[0]).state == {
        "rank 0 printed text": "0 characters",
        "rank 1 printed text": "0 characters",
        "file log1.txt": "4 B 43b9fe3c",
    }


def written(folder: pathlib.Path, content: bytes, *, writers: int) -> str:
    """Tell of a file that as many ranks were seen to open."""
    shared = SharedFolder(folder)
    shared.put_back()
    (folder / "log").write_bytes(content)
    seen = {f"{OPENED}./log": "1 times"}
    ranks = [
        replace(rank, outcome=replace(rank.outcome, state=seen if rank.rank < writers else {}))
        for rank in two_ranks()
    ]
    found = shared.looked_at(ranks)[0].files["file log"]
    (folder / "log").unlink()
    return found


@pytest.mark.parametrize("writers", [0, 2])
def test_lines_of_several_ranks_have_no_order(tmp_path: pathlib.Path, writers: int) -> None:
    first = written(tmp_path, b"rank 0\nrank 1\n", writers=writers)
    assert first == written(tmp_path, b"rank 1\nrank 0\n", writers=writers)
    assert first != written(tmp_path, b"rank 1\nrank 1\n", writers=writers)


def test_of_what_several_ranks_write_and_is_no_text_the_size_is_told(
    tmp_path: pathlib.Path,
) -> None:
    assert written(tmp_path, b"\0\1", writers=2) == "2 B"


def test_all_of_a_file_of_one_rank_is_compared(tmp_path: pathlib.Path) -> None:
    swapped = [written(tmp_path, each, writers=1) for each in (b"1\n2\n", b"2\n1\n")]
    binary = [written(tmp_path, each, writers=1) for each in (b"\0\1", b"\0\2")]
    assert len({*swapped, *binary}) == 4


def test_a_folder_that_a_driver_writes_to_is_not_looked_at(tmp_path: pathlib.Path) -> None:
    shared = SharedFolder(tmp_path, is_looked_at=False)
    shared.put_back()
    (tmp_path / "cache").write_text("kernels")
    assert shared.looked_at(two_ranks()) == two_ranks()


def test_a_rank_does_not_take_files_of_others_for_its_own(tmp_path: pathlib.Path) -> None:
    with Effects(tmp_path, is_shared=True) as effects:
        (tmp_path / "log.txt").write_text("step")
    found = effects.values()
    assert "file log.txt" not in found
    assert found["file opened for writing: log.txt"] == "1 times"
