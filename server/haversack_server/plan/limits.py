"""Where a solve stops being exact, and how much of a frontier is answered unasked."""

STATE_LIMIT = 4_000_000  # states of a list, 24 bytes each: about 100 MB for one solve
FRONTIER_POINTS = 8
