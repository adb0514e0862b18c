"""How every command behaves: sections in its help, and errors that name the option at fault."""

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from haversack.cli.calls import write
from haversack.cli.option_types import FieldOption
from haversack.errors import InvalidRequestError
from haversack.reading import shown

MOST_FAULTS = 5  # of an error that are told, each in a line with the option that it came from


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
        except InvalidRequestError as wrong:
            for fault in wrong.violations[:MOST_FAULTS]:
                wrong.add_note(self._hint(fault.field, given))
            raise

    def _hint(self, field: str, given: dict[str, Any]) -> str:
        """Name the flag that fills a field, with the file that it names."""
        if field == "subject":
            subjects = [
                option
                for option in self._options()
                if option.section == "Model" or "workload" in option.fields
            ]
            return "give " + ", ".join(option.opts[0] for option in subjects)
        if field == "documents" and not given.get("model"):
            return "--model"
        if field.startswith("what_ifs[") and given.get("knobs"):
            return _of_variation(field, given)
        fitting = [
            (len(place), _is_given(option, given), option.opts[0])
            for option in self._options()
            for place in option.fields
            if _lies_in(field, place)
        ]
        flag = max(fitting)[2] if fitting else ""
        return _of_document(field, given) or flag if field.startswith("documents[") else flag

    def _options(self) -> list[FieldOption]:
        return [each for each in self.params if isinstance(each, FieldOption)]


def _of_document(field: str, given: dict[str, Any]) -> str:
    """Name the option, and the file, that a document came from: the model's stands first."""
    index = int(field.removeprefix("documents[").partition("]")[0])
    files = [("--model", given["model"])] if given.get("model") else []
    files += [("--config", config) for config in given.get("configs") or ()]
    if index < len(files):
        return f"{files[index][0]} {shown(files[index][1])}"
    return "--launch" if given.get("launch") else ""


def _of_variation(field: str, given: dict[str, Any]) -> str:
    """Name the option that a variation came from: those of knobs stand first."""
    index = int(field.removeprefix("what_ifs[").partition("]")[0])
    return "--knob" if index < len(given["knobs"]) else "--what-if"


def _lies_in(field: str, place: str) -> bool:
    return field == place or field.startswith((f"{place}.", f"{place}["))


def _is_given(option: FieldOption, given: dict[str, Any]) -> bool:
    return bool(given.get(option.name or ""))
