"""How solves end that dispatch gave to a CUDA device: the words of a metric."""

OUTCOMES = ("solved", "cancelled", "memory", "fault", "lost", "hung", "wrong", "away")
"""All but the first two go on elsewhere.

The worker said that memory is short, or that something failed; it is no more; it did not answer in
time; its answer could not be believed; it was being replaced when the solve's turn came.
"""
