"""Pages at 80 columns, in a pipe, on a terminal, without UTF-8; ranges of names."""

from collections.abc import Callable
from typing import Any

import pytest
from rich.text import Text
from tests.unit.cli.samples import ESTIMATE, PLAN, PLAN_REQUEST, REPORT, REQUEST, Sink, drawn

from haversack.cli.render.estimate import draw_estimate
from haversack.cli.render.page import Column, Page
from haversack.cli.render.plan import draw_plan
from haversack.cli.render.ranges import compressed, indices
from haversack.cli.render.verify import draw_report

STEERING = "\x1b]0;title\x07 \x9b31m"
PAGES = [
    (draw_estimate, (REQUEST, ESTIMATE, True)),
    (draw_plan, (PLAN_REQUEST, PLAN, True)),
    (draw_report, (REPORT, True)),
]


@pytest.mark.parametrize(("draw", "answer"), PAGES)
@pytest.mark.parametrize("width", [80, 120])
def test_pages_keep_inside_their_width_and_never_cut(
    draw: Callable[..., None], answer: tuple[Any, ...], width: int
) -> None:
    text = drawn(draw, *answer, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_words_of_a_workload_do_not_steer_the_terminal() -> None:
    def draw(page: Page) -> None:
        page.headline("FAILED", "", STEERING)
        page.line(STEERING, (STEERING, ""))
        page.indented(STEERING)
        page.bullets("Warnings", [STEERING])
        page.table([Column(), Column()], [[STEERING, Text(STEERING)]])

    text = drawn(draw)
    assert text.count("\ufffd]0;title") == 7
    assert not {"\x1b", "\x07", "\x9b"} & set(text)


@pytest.mark.parametrize(("draw", "answer"), PAGES)
def test_a_pipe_gets_no_colours_and_a_terminal_does(
    draw: Callable[..., None], answer: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in drawn(draw, *answer)
    terminal = drawn(draw, *answer, sink=Sink(terminal=True))
    assert "\x1b[1;3" in terminal
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;3" not in drawn(draw, *answer, sink=Sink(terminal=True))
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in drawn(draw, *answer, sink=Sink(terminal=True))


@pytest.mark.parametrize(("draw", "answer"), PAGES)
def test_an_encoding_without_signs_gets_plain_ones(
    draw: Callable[..., None], answer: tuple[Any, ...]
) -> None:
    assert drawn(draw, *answer, sink=Sink(encoding="ascii")).isascii()


def test_a_narrow_terminal_wraps_instead_of_cutting_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert Page.of(Sink()).width == 72
    monkeypatch.setenv("COLUMNS", "300")
    assert Page.of(Sink()).width == 120


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ([], []),
        (["head"], ["head"]),
        (["layers.0", "layers.1", "layers.2"], ["layers.0-2"]),
        (["layers.0", "layers.2", "layers.3"], ["layers.0", "layers.2-3"]),
        (["h.9.attn", "h.10.attn"], ["h.9-10.attn"]),
        (["a1", "b2"], ["a1", "b2"]),
        (["layers.1", "layers.1"], ["layers.1", "layers.1"]),
    ],
)
def test_runs_of_numbered_names_become_ranges(names: list[str], short: list[str]) -> None:
    assert compressed(names) == short


def test_indices_become_ranges() -> None:
    assert indices([0, 1, 2, 7, 9, 10]) == "0-2, 7, 9-10"
