"""A resume job from what people write: "2:4" ranks, "full", numbers of steps.

Knows how the ranks of a request follow from it, and nothing of what a job does with them.
"""

import re
from dataclasses import replace
from typing import Any

from haversack import checks, spelling
from haversack.parallelism import Sharding
from haversack.reading import refuse
from haversack.verify import TrainingCheckpoint, VerifyResume, VerifyWorld
from haversack.verify_fields import sharding_of

_RANKS = re.compile(r"(\d{1,5})(?::(\d{1,5}))?")
_SETTINGS = ("saved_as", "steps_before", "steps_after", "leave_out_each")


def resume_of(given: dict[str, Any]) -> tuple[VerifyResume | None, VerifyWorld | None]:
    """Take what ``given`` says of a resume job out of it, and the ranks that save with it.

    Both are None where no resume is asked for; the ranks too where ``resume`` names none, so that
    ``shard`` and ``world_size`` stay to say them.
    """
    resume = given.pop("resume", None)
    settings = {name: given.pop(name, None) for name in _SETTINGS}
    # By identity: 0 steps are asked for, and refused.
    settings = {
        n: value for n, value in settings.items() if value is not None and value is not False
    }
    if resume is None:
        for name in settings:
            refuse("it belongs to a resume job; say resume 2:2 too, or leave it out", name)
        return None, None
    if isinstance(resume, VerifyResume):
        return replace(resume, **_read(settings)), None
    saved, resumed = _ranks(resume)
    return VerifyResume(size=resumed, **_read(settings)), _world(saved, given)


def _read(settings: dict[str, Any]) -> dict[str, Any]:
    read = {name: checks.plain(value) for name, value in settings.items()}
    if "saved_as" in read:
        read["saved_as"] = spelling.named(TrainingCheckpoint, read["saved_as"], "resume.saved_as")
    if "leave_out_each" in read:
        spelling.flag(read["leave_out_each"], "resume.leave_out_each")
    return read


def _ranks(resume: object) -> tuple[int, int]:
    written = str(resume) if type(resume) is int else spelling.text(resume, "resume")
    found = _RANKS.fullmatch(written.strip())
    if found is None:
        shown = checks.shortly(resume)
        refuse(f"{shown} is no pair of ranks; 2:4 saves on 2 and goes on with 4", "resume")
    return int(found[1]), int(found[2] or found[1])


def _world(saved: int, given: dict[str, Any]) -> VerifyWorld:
    shard, world_size = given.pop("shard", None), given.pop("world_size", None)
    if world_size not in (None, saved):
        refuse(f"{saved} ranks save, as resume says; leave it out", "world.size")
    return VerifyWorld(size=saved, sharding=Sharding.FSDP2 if shard is None else sharding_of(shard))
