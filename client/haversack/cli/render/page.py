"""The page that answers are drawn on: width, colours, bars, tables, lists.

Readable on a dumb terminal, in a pipe, in 80 columns: colour only repeats what words say, and
figures are never cut. Knows nothing of estimates, plans and reports.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

NARROWEST, WIDEST = 72, 120  # columns; a narrower terminal wraps lines, instead of our cutting them
GOOD, WARN, BAD, DIM, STRONG = "bold green", "bold yellow", "bold red", "dim", "bold"

_EIGHTHS = " ▏▎▍▌▋▊▉"
_STEERING = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t\r"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Figures stand right; neither they nor ``whole`` words are broken."""

    heading: str = ""
    figures: bool = False
    whole: bool = False
    style: str = ""


class Page:
    """Collects what is drawn, and gives it as text for the terminal or pipe at hand."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn: list[RenderableType] = []

    @classmethod
    def of(cls, file: IO[str], width: int | None = None) -> "Page":
        """Make a page for a file or terminal, as wide as that is within reason."""
        console = Console(file=file, highlight=False, markup=False, emoji=False)
        console.width = width or max(NARROWEST, min(WIDEST, console.width))
        return cls(console)

    @property
    def width(self) -> int:
        """Columns of the page."""
        return self._console.width

    @property
    def is_wide(self) -> bool:
        """Whether there is room for a remark beside figures."""
        return self.width >= 100

    def text(self) -> str:
        """Give what was drawn, with the terminal's colours if it has any."""
        with self._console.capture() as captured:
            for each in self._drawn:
                self._console.print(each)
        lines = captured.get().splitlines()
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def blank(self) -> None:
        """Leave a line."""
        self._drawn.append(Text())

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Draw a paragraph of words, each part plain or with its style."""
        self._drawn.append(_shown(*parts))

    def indented(self, *parts: str | tuple[str, str], depth: int = 1) -> None:
        """Draw a paragraph a little to the right, all its lines."""
        self._drawn.append(Padding(_shown(*parts), (0, 0, 0, 2 * depth)))

    def headline(self, word: str, style: str, sentence: str) -> None:
        """Draw a verdict: a word, and a sentence beside it."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(word, style), _shown(sentence))
        self._drawn.append(grid)

    def heading(self, title: str, remark: str = "") -> None:
        """Draw the title of a section, with a remark at its right."""
        self.blank()
        self._drawn.append(Text.assemble((title, STRONG), ("  " if remark else ""), (remark, DIM)))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
        """Draw a table; words fold where they must, figures never."""
        headed = any(column.heading for column in columns)
        table = _grid(show_header=headed, header_style=DIM)
        for column in columns:
            table.add_column(
                column.heading,
                justify="right" if column.figures else "left",
                no_wrap=column.figures or column.whole,
                overflow="fold",
                style=column.style,
            )
        for row in rows:
            table.add_row(*map(_shown, row))
        self._drawn.append(Padding(table, (0, 0, 0, 2)))

    def bullets(self, title: str, sentences: Sequence[str]) -> None:
        """Draw a list with a title; nothing if it is empty."""
        if not sentences:
            return
        self.heading(title)
        grid = _grid(show_header=False)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for sentence in sentences:
            grid.add_row("-", _shown(sentence))
        self._drawn.append(Padding(grid, (0, 0, 0, 2)))

    def bar(self, part: int, whole: int, width: int, style: str = "") -> Text:
        """Draw a part of a whole as a bar."""
        share = part / whole if whole else 0.0
        eighths = round(max(0.0, min(1.0, share)) * width * 8)
        if not self.has_signs:
            return Text("#" * round(eighths / 8), style)
        rest = _EIGHTHS[eighths % 8].strip()
        return Text("█" * (eighths // 8) + rest, style)

    def mark(self, sign: str, plain: str, style: str) -> Text:
        """Draw a sign, or its plain spelling where the encoding has no signs."""
        return Text(sign if self.has_signs else plain, style)

    @property
    def has_signs(self) -> bool:
        """Whether the encoding has blocks and signs."""
        return self._console.encoding.lower().startswith("utf")


def _shown(*parts: str | tuple[str, str] | Text) -> Text:
    """Put words together, which may be a workload's: what would steer a terminal is a sign."""
    text = Text.assemble(*parts)
    text.plain = text.plain.translate(_STEERING)
    return text


def _grid(**look: Any) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 1), **look)
