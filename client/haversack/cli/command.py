"""How every command behaves: sections in its help, and errors that name the option at fault."""

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from haversack.cli.calls import write
from haversack.cli.hints import Hints
from haversack.cli.option_types import FieldOption
from haversack.errors import HaversackError


class WrittenHelp(click.Command):
    """A command whose help is written as its answers are: with one sentence where it cannot be."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Make the option that shows the help."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _write_help
        return option


def _write_help(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        write(ctx.get_help() + "\n")
        ctx.exit()


class AnswerCommand(WrittenHelp):
    """A command whose options fill the fields of a request."""

    def make_context(self, *arguments: Any, **keywords: Any) -> click.Context:
        """Parse the command line; a value that will not do names its option."""
        with self._naming_options({}):
            return super().make_context(*arguments, **keywords)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a field that will not do names its option."""
        with self._naming_options(ctx.params):
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options section by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            # An argument is a word of the usage line, and the text above tells what it is.
            if record is not None and isinstance(parameter, click.Option):
                section = getattr(parameter, "section", "Help")
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)

    @contextlib.contextmanager
    def _naming_options(self, given: dict[str, Any]) -> Iterator[None]:
        try:
            yield
        except HaversackError as wrong:
            options = [each for each in self.params if isinstance(each, FieldOption)]
            for hint in Hints(options, given).of_error(wrong):
                wrong.add_note(hint)
            raise
