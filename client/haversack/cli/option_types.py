"""Options that know their field, and the types of their values.

An error about a field can so name the flag. Values are only spelled here; the builders and the
nouns check them.
"""

from collections.abc import Callable
from typing import Any

import click

from haversack import checks
from haversack.checks import shortly
from haversack.cli import files
from haversack.errors import check
from haversack.reading import refuse

Decorated = Callable[..., Any]

MOST_PORT = 65535


class FieldOption(click.Option):
    """An option with the fields of the request that it fills, and its section of the help."""

    def __init__(
        self, *arguments: Any, fields: tuple[str, ...], section: str, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.fields = fields
        self.section = section


def option(section: str, *flags: str, field: str = "", about: str, **keywords: Any) -> Decorated:
    """Make an option that fills a field; several are parted by spaces."""
    fields = tuple(field.split())
    return click.option(
        *flags, cls=FieldOption, section=section, fields=fields, help=about, **keywords
    )


class FieldType(click.ParamType[Any]):
    """A value that is refused in the name of its option's field."""

    name = "VALUE"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Show the name as it is written here."""
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read text; what is read already passes."""
        field = param.fields[0] if isinstance(param, FieldOption) else ""
        return self.read(value, field) if isinstance(value, str) else value

    def read(self, text: str, field: str) -> Any:
        """Read the text of an option, or refuse it."""
        raise NotImplementedError


class Whole(FieldType):
    """A whole number."""

    name = "N"

    def read(self, text: str, field: str) -> int:
        """Read digits, with a sign or not."""
        digits = text.strip()
        if len(digits) > 20 or not digits.removeprefix("-").isdecimal():
            refuse(f"{shortly(text)} is not a whole number such as 8", field)
        return int(digits)


class YesNoOrWhole(Whole):
    """Yes, no, or a whole number."""

    name = "yes|no|N"

    def read(self, text: str, field: str) -> Any:
        """Read one of the two words, or digits."""
        word = text.strip().lower()
        if word in ("yes", "no"):
            return word == "yes"
        if not word.isdecimal():
            refuse(f"{shortly(text)} will not do; give yes, no or a number of ranks", field)
        return super().read(text, field)


class Names(FieldType):
    """Names with commas between them."""

    name = "NAME,..."

    def read(self, text: str, field: str) -> tuple[str, ...]:
        """Read names; none may be empty."""
        names = tuple(each.strip() for each in text.split(","))
        if not all(names):
            refuse(f"{shortly(text)} has a name that is empty; give such as layers,head", field)
        return names


class Seconds(FieldType):
    """A number of seconds, above 0."""

    name = "SECONDS"

    def read(self, text: str, field: str) -> float:
        """Read a decimal number."""
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 10**9:
            refuse(f"{shortly(text)} is not a number of seconds above 0, such as 60", field)
        return seconds


class AutoOrOff(FieldType):
    """Whether something is used where it is there, or never."""

    name = "auto|off"

    def read(self, text: str, field: str) -> str:
        """Take one of the two words."""
        if text not in (words := self.name.split("|")):
            refuse(f"{shortly(text)} will not do; give {' or '.join(words)}", field)
        return text


class LocalOrRay(AutoOrOff):
    """Where jobs run."""

    name = "local|ray"


class Port(Whole):
    """A port."""

    name = "PORT"

    def read(self, text: str, field: str) -> int:
        """Read a port from 0, which picks a free one, to 65535."""
        port = super().read(text, field)
        if not 0 <= port <= MOST_PORT:
            refuse(f"{port} is no port; give one from 0 (a free one) to {MOST_PORT}", field)
        return port


class Address(FieldType):
    """Where a server listens, HOST:PORT."""

    name = "HOST:PORT"

    def read(self, text: str, field: str) -> str:
        """Check the port of HOST:PORT; a unix: path or gRPC's dns:// passes as it is."""
        check(checks.address(field, text))
        if text.startswith("unix:") or "//" in text:
            return text
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port:
            refuse(f"{shortly(text)} is no address; give HOST:PORT, such as localhost:50051", field)
        Port().read(port, field)
        return text


class UnitsFile(FieldType):
    """A file of units."""

    name = "UNITS.json"

    def read(self, text: str, field: str) -> Any:
        """Read the list of units."""
        return files.read_units(text, field)


class CandidatesFile(FieldType):
    """A file of candidates, in either form."""

    name = "FILE.json"

    def read(self, text: str, field: str) -> Any:
        """Read the columns."""
        return files.read_candidates(text)
