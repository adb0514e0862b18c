"""What documents show of the command line: fenced blocks that start with ``$ haversack``."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```console\n\$ haversack (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def console_blocks(document: Path) -> list[tuple[str, list[str]]]:
    """Find a document's commands, each with the lines that it shows beside it."""
    return [(line, shown.splitlines()) for line, shown in _BLOCK.findall(document.read_text())]


def follow(wanted: list[str], printed: list[str]) -> bool:
    """Compare lines; a line of three dots stands for any number of others."""
    if not wanted:
        return not printed
    if wanted[0] == "...":
        return any(follow(wanted[1:], printed[skip:]) for skip in range(len(printed) + 1))
    return bool(printed) and wanted[0] == printed[0] and follow(wanted[1:], printed[1:])
