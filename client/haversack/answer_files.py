"""Profiles and plans as files: the message in protobuf JSON, written once and read anywhere.

A profile is also read from the answer that a plan of code was saved as. Every fault is an
InvalidRequestError that names the file. Loads protobuf when a file is read or written.
"""

from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from haversack import reading, strict_json
from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism
from haversack.plan import Plan
from haversack.profile import Profile
from haversack.reading import refuse, shown

MOST_BYTES = 64 * 2**20  # as much as a message may have
_A_PROFILE = "give a file that `haversack profile -o` wrote, or `haversack plan --workload -o`"
_A_PLAN = "give a file that `haversack plan -o` wrote"
_PLAN_KEYS = {"status", "actions", "reason"}  # one at least; what is empty is not written
Noun = TypeVar("Noun", Profile, Plan)


def write_profile(profile: Profile, path: str | PathLike[str]) -> None:
    """Write a profile to a file."""
    _write(profile, path)


def write_plan(plan: Plan, path: str | PathLike[str]) -> None:
    """Write a plan to a file."""
    _write(plan, path)


def read_profile(path: str | PathLike[str]) -> Profile:
    """Read a profile, or the one that an answer has in it."""
    return read_profile_and_ranks(path)[0]


def read_profile_and_ranks(path: str | PathLike[str]) -> tuple[Profile, Parallelism]:
    """Read a profile, and the ranks of the plan that has it; of a profile alone, none."""
    table = _read(path, "profile", _A_PROFILE)
    if "blocks" in table:
        return _noun(Profile, table, path, "profile"), Parallelism()
    if not table.keys() & _PLAN_KEYS:
        refuse(f"{shown(path)} is no profile; {_A_PROFILE}", "profile")
    plan = _noun(Plan, table, path, "profile")
    if plan.profile is None:
        refuse(f"{shown(path)} is a plan without a profile; {_A_PROFILE}", "profile")
    return plan.profile, plan.parallelism or Parallelism()


def read_plan(path: str | PathLike[str], *, field: str = "plan") -> Plan:
    """Read a plan, for ``haversack.torch.apply``; errors name ``field``."""
    table = _read(path, field, _A_PLAN)
    if not table.keys() & _PLAN_KEYS:
        refuse(f"{shown(path)} is no plan; {_A_PLAN}", field)
    return _noun(Plan, table, path, field)


def _write(noun: Profile | Plan, path: str | PathLike[str]) -> None:
    from google.protobuf import json_format

    from haversack import wire

    text = json_format.MessageToJson(wire.message_of(noun), preserving_proto_field_name=True)
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as wrong:
        reason = (wrong.strerror or type(wrong).__name__).lower()
        raise InvalidRequestError(
            f"{shown(path)}: {reason}; give a file that can be written", field="output"
        ) from wrong


def _read(path: str | PathLike[str], field: str, wanted: str) -> dict[str, Any]:
    text = reading.read_text(path, field=field, most_bytes=MOST_BYTES, wanted=wanted)
    try:
        return strict_json.parse_object(text, field=field, max_bytes=MOST_BYTES)
    except InvalidRequestError as wrong:
        refuse(f"{shown(path)}: {wrong.violations[0].description}; {wanted}", field)


def _noun(kind: type[Noun], table: dict[str, Any], path: str | PathLike[str], field: str) -> Noun:
    """Read a message; one of a newer version may have fields that are not known here."""
    from google.protobuf import json_format

    from haversack import wire

    message = wire.MESSAGES[kind]()
    try:
        json_format.ParseDict(table, message, ignore_unknown_fields=True)
        return wire.from_message(kind, message)
    except json_format.ParseError as wrong:
        refuse(f"{shown(path)}: it is no {field}: {str(wrong).rstrip('.')}", field)
    except InvalidRequestError as wrong:
        refuse(f"{shown(path)}: {wrong}", field)
