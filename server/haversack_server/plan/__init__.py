"""Plan: what to save and what to recompute under a budget."""
