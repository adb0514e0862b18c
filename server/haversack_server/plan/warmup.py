"""Compiling the kernels before the first request pays for it."""


def warm() -> None:
    """Compile every kernel, or load it from disk; 10 CPU-seconds once, then half a second."""
    from haversack_kernels.warmup import warm_up

    warm_up()
