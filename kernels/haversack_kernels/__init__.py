"""Exact solvers for what to save, and sums over memory: arrays in, arrays out.

Imports nothing by itself: ``haversack_kernels.knapsack`` and ``haversack_kernels.ceiling`` load
numba when they are imported. Knows nothing of models, budgets, requests or the service.
"""

__version__ = "0.1.0"
