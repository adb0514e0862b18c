"""What an answer stands on."""

import enum


class Basis(enum.IntEnum):
    """What an answer stands on, from the weakest to the strongest."""

    UNSPECIFIED = 0
    ANALYTIC = 1
    PROFILED = 2
    SIMULATED = 3
    MEASURED = 4
