"""Estimate: what a training run needs on each rank."""
