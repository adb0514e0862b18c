"""What became of the random generators of a rank that goes on: their whole states, at each turn.

States travel as digests that no two states share. Reads states, never draws; what they mean is
decided in ``haversack_server.verify.resume_random``.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from haversack_server.verify.resume_random import SourceRead
from haversack_server.worker import rng

States = dict[str, str]


def states_now() -> States:
    """Digest the whole state of every default generator, by its source."""
    contents = rng.default_contents().items()
    return {source: hashlib.sha256(content).hexdigest() for source, content in contents}


@dataclass(frozen=True, slots=True)
class Turns:
    """States of one rank that goes on.

    ``before`` and ``after`` it was given what the files hold, and at the ``end`` of its next steps.
    """

    before: States
    after: States
    end: States


def reads(
    rank: int, turns: Turns, saved: Sequence[Mapping[str, States]], end_without_a_stop: States
) -> tuple[SourceRead, ...]:
    """Say of every source what was given to it.

    ``saved`` has for each rank that saved its states when it ``begun`` and when it ``saved``;
    ``end_without_a_stop`` are those of the same rank of a run that was not stopped.
    """
    return tuple(
        SourceRead(
            source=source,
            drawn_before=any(_drew(each, source) for each in saved),
            drawn_after=turns.end[source] != after,
            unchanged=after == turns.before[source],
            begins_again=rank < len(saved)
            and _drew(saved[rank], source)
            and saved[rank]["begun"][source] == after,
            of_ranks=tuple(
                owner for owner, each in enumerate(saved) if each["saved"][source] == after
            ),
            ends_alike=turns.end[source] == end_without_a_stop[source],
        )
        for source, after in turns.after.items()
    )


def _drew(saved: Mapping[str, States], source: str) -> bool:
    return saved["saved"][source] != saved["begun"][source]
