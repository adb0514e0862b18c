"""Verify without torch: the verdict rule, the built-in workloads by name, what may be run.

Runs nothing and knows neither gRPC nor torch. ``haversack_server.jobs`` supervises the processes,
``haversack_server.worker`` is what they run; both speak in the frames of this package.
"""
