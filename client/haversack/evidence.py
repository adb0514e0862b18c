"""Measured rows that an estimate can be held against: what was measured, and what we say of it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A measured run near the one that was asked for; ``distance`` says how they differ."""

    id: str
    source: str = ""
    measured: str = ""
    measured_bytes: int = 0
    estimated_bytes: int = 0
    distance: str = ""
