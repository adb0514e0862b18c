"""The command line: ``haversack estimate|plan|verify|serve|warmup``."""

from haversack.cli.entry import main

__all__ = ["main"]
