"""Bytes and nanoseconds as people write them; the only file that knows 1024."""

import re

from haversack.errors import InvalidRequestError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
INT64_MAX = 2**63 - 1

_BYTES = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*(\d{1,40})(?:\.(\d{1,40}))?\s*([A-Za-z]*)\s*")


def parse_bytes(text: str, field: str = "") -> int:
    """Read "80GiB", "1.5 GB" or "4096" as bytes, rounded down.

    GB is 10^9 and GiB is 2^30; a bare number is bytes.
    """
    match = _QUANTITY.fullmatch(text)
    unit = _BYTES.get(match[3].lower()) if match else None
    if match is None or unit is None:
        raise InvalidRequestError(
            f"{text!r} is not a number of bytes; write 80GiB, 1.5GB or 4096", field=field
        )
    whole, fraction = match[1], match[2] or ""
    bytes_ = int(whole + fraction) * unit // int(10 ** len(fraction))
    if bytes_ > INT64_MAX:
        raise InvalidRequestError(f"{text!r} is above 2^63-1 bytes", field=field)
    return bytes_


def format_bytes(size_bytes: int) -> str:
    """Write bytes with a binary unit: 12,884,901,888 is "12.00 GiB"."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:.2f} {name}"
    return f"{size_bytes} B"


def format_ns(duration_ns: int) -> str:
    """Write nanoseconds with a decimal unit: 1,500,000 is "1.50 ms"."""
    for unit, name in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if abs(duration_ns) >= unit:
            return f"{duration_ns / unit:.2f} {name}"
    return f"{duration_ns} ns"
