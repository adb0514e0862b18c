"""Files that callers name, read as text of at most so many bytes.

Knows one sentence for each fault. Knows nothing of what the text means.
"""

from os import PathLike
from pathlib import Path
from typing import NoReturn

from haversack import units
from haversack.errors import InvalidRequestError

LONGEST_PATH_SHOWN = 200  # characters


def read_text(path: str | PathLike[str], *, field: str, most_bytes: int, wanted: str) -> str:
    """Read a UTF-8 file of at most ``most_bytes``; ``wanted`` says what would do instead."""
    if not isinstance(path, str | PathLike):
        refuse(f"a {type(path).__name__} is no path; {wanted}", field)
    if not str(path):
        refuse(f"the path is empty; {wanted}", field)
    name = shown(path)
    try:
        with Path(path).open("rb") as file:
            raw = file.read(most_bytes + 1)
        if len(raw) > most_bytes:
            refuse(f"{name} is larger than {units.format_bytes(most_bytes)}; {wanted}", field)
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        refuse(f"{name} is not text; {wanted}", field)
    except OSError as wrong:
        refuse(f"{name}: {_reason(wrong)}; {wanted}", field)
    except ValueError:  # a path with a null character
        refuse(f"{name!r} is not a path; {wanted}", field)


def shown(path: object) -> str:
    """Write a path for a sentence: as it is, or the two ends of a long one."""
    name = str(path)
    if len(name) <= LONGEST_PATH_SHOWN:
        return name
    return f"{name[:40]}...{name[-80:]}"


def refuse(sentence: str, field: str) -> NoReturn:
    """Raise the sentence at the field."""
    raise InvalidRequestError(sentence, field=field)


def _reason(wrong: OSError) -> str:
    return (wrong.strerror or type(wrong).__name__).lower()
