"""Compiling the kernels before the first request pays for it."""


def warm() -> None:
    """Compile every kernel, or load it from disk; 44 CPU-seconds once, then one."""
    from haversack_kernels.warmup import warm_up

    warm_up()
