"""A request with its documents read: every setting a typed field, as if the caller had given it.

The one place where documents meet the request, called at the door of a room. The rooms behind see
typed fields and the model's document alone; what is to be said of the documents, the door adds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

from haversack.errors import InvalidRequestError, Violation
from haversack.estimate import Estimate
from haversack.plan import Plan, PlanRequest
from haversack.run import BlockAction, DocumentFormat, TrainingRun
from haversack_server.memory.architecture import UnitKind
from haversack_server.memory.devices import named
from haversack_server.memory.inputs.derived import derive
from haversack_server.memory.inputs.formats import ADAPTERS
from haversack_server.memory.inputs.merging import Merged, Placed, merged, written
from haversack_server.memory.inputs.model import hidden_size, read_model, source_of
from haversack_server.memory.inputs.reading import (
    DEEPSPEED_FILE,
    ENGINE,
    RECOMPUTE_EVERY,
    FromHidden,
    Reading,
    Source,
)
from haversack_server.memory.variations import is_set

Run = TypeVar("Run", bound=TrainingRun)
Answer = TypeVar("Answer", Estimate, Plan)
Read = Sequence[tuple[Source, Reading]]

LONGEST_KEY = 200  # characters; answers are to stay below what a message may hold
MOST_LISTED = 1000  # keys of one document
_CHANGES_NOTHING = ": changes no memory"
_NOUNS = ("training", "parallelism", "device")


@dataclass(frozen=True, slots=True)
class Settled(Generic[Run]):
    """The request as it is answered, and what is to be said of its documents.

    ``settings`` say which document set what, and what the request overrode; ``unmodelled`` are
    settings that decide memory and that no term knows.
    """

    run: Run
    settings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unmodelled: tuple[str, ...] = ()


def settle(run: Run) -> Settled[Run]:
    """Read the documents of a request, and fill its fields from them."""
    read = [
        (source_of(document, index), document)
        for index, document in enumerate(run.documents)
        if document.format in ADAPTERS
    ]
    if not read and not run.device.name:
        return Settled(run)  # the usual request: nothing to fill in
    if not read:
        device, said = named(run.device)
        return Settled(replace(run, device=device), assumptions=said)
    readings = [(source, ADAPTERS[each.format](each.text, source)) for source, each in read]
    typed = typed_fields(run)
    found, overridden = merged(_placed(readings), typed)
    found, unresolved = _resolved(found, run)
    found, replaced = _left_to_a_plan(found, run)
    formats = {each.format for _, each in read}
    derivation = derive(found, typed, has_deepspeed=DocumentFormat.DEEPSPEED in formats)
    values = {name: each.setting.value for name, each in found.items()} | derivation.values
    values |= _actions(found, typed, run)
    filled = _filled(run, values, found)
    device, of_device = named(filled.device)
    assumptions = (*_all(readings, "assumptions"), *unresolved, *replaced, *derivation.assumptions)
    return Settled(
        run=replace(filled, device=device),
        settings=(*_said(found), *derivation.settings, *overridden),
        assumptions=(*assumptions, *of_device),
        ignored=_ignored(readings),
        unmodelled=(*_all(readings, "unmodelled"), *derivation.unmodelled),
    )


def with_documents(answer: Answer, settled: Settled[Any]) -> Answer:
    """Say in an answer what the documents set, left open and were not used for."""
    return replace(
        answer,
        settings=settled.settings,
        assumptions=(*settled.assumptions, *answer.assumptions),
        ignored_inputs=(*answer.ignored_inputs, *settled.ignored),
    )


def typed_fields(run: TrainingRun) -> dict[str, Any]:
    """Give every setting that the request itself makes, by the path of its field."""
    given = {
        f"{noun}.{each.name}": getattr(getattr(run, noun), each.name)
        for noun in _NOUNS
        for each in fields(getattr(run, noun))
    }
    given["kernel_profile"] = run.kernel_profile
    found = {path: value for path, value in given.items() if is_set(value)}
    if run.training.actions:  # they are the recomputation, block by block
        found["training.recompute"] = "as its actions say"
    return found


def _placed(read: Read) -> list[Placed]:
    return [Placed(source, each) for source, reading in read for each in reading.settings]


def _resolved(found: Merged, run: TrainingRun) -> tuple[Merged, tuple[str, ...]]:
    """Work out what "auto" stands for, now that the model may be known."""
    if not any(isinstance(each.setting.value, FromHidden) for each in found.values()):
        return found, ()
    hidden = hidden_size(run)
    made: Merged = {}
    said: list[str] = []
    for name, each in found.items():
        value = each.setting.value
        if not isinstance(value, FromHidden):
            made[name] = each
        elif hidden is None:
            said.append(f"{each.place} is auto: the default, since no document has a hidden size")
        else:
            figure = value.value(hidden)
            made[name] = replace(each, setting=replace(each.setting, value=figure))
            said.append(f"{each.place} is auto: {figure:,}, {value.words} as transformers sets it")
    return made, tuple(said)


def _left_to_a_plan(found: Merged, run: TrainingRun) -> tuple[Merged, tuple[str, ...]]:
    """Take out what files recompute, where a plan is asked for: that is what it answers."""
    if not isinstance(run, PlanRequest):
        return found, ()
    kept, said = dict(found), []
    for name, each in found.items():
        if name.startswith("training.recompute") or name == RECOMPUTE_EVERY:
            del kept[name]
            said.append(f"{each.place} gives way to the plan, which chooses what is recomputed")
    return kept, tuple(said)


def _actions(found: Merged, typed: Mapping[str, Any], run: TrainingRun) -> dict[str, Any]:
    """Turn "every n-th layer" into the actions of the model's layers; torchtitan counts from 1."""
    every = found.get(RECOMPUTE_EVERY)
    if every is None or "training.actions" in typed or "training.recompute" in typed:
        return {}
    step = max(1, every.setting.value)
    units = read_model(run).architecture.units
    layers = [unit.name for unit in units if unit.kind is UnitKind.LAYER]
    chosen = layers[step - 1 :: step]
    return {
        "training.actions": tuple(BlockAction(block=name, option="recompute") for name in chosen)
    }


def _filled(run: Run, values: Mapping[str, Any], found: Merged) -> Run:
    """Make the request anew; a value that will not do names the document it came from."""
    parts: dict[str, Any] = {}
    try:
        for noun in _NOUNS:
            prefix = f"{noun}."
            given = {
                name.removeprefix(prefix): value
                for name, value in values.items()
                if name.startswith(prefix)
            }
            parts[noun] = replace(getattr(run, noun), **given)
    except InvalidRequestError as wrong:
        raise InvalidRequestError(violations=_with_places(wrong, found)) from wrong
    parts["kernel_profile"] = values.get("kernel_profile", run.kernel_profile)
    return replace(run, **parts)


def _with_places(wrong: InvalidRequestError, found: Merged) -> list[Violation]:
    return [
        Violation(each.field, f"{each.description}; set by {found[each.field].place}")
        if each.field in found
        else each
        for each in wrong.violations
    ]


def _said(found: Merged) -> list[str]:
    return [
        f"{name} = {written(each.setting.value)}: {each.place}"
        for name, each in found.items()
        if name not in (ENGINE, DEEPSPEED_FILE)
    ]


def _all(read: Read, kind: str) -> list[str]:
    return [sentence for _, reading in read for sentence in getattr(reading, kind)]


def _ignored(read: Read) -> tuple[str, ...]:
    """List the keys that had no part in the answer, those first that nobody knows."""
    unknown = [entry for source, each in read for entry in _listed(source, each.ignored, "")]
    silent = [
        entry for source, each in read for entry in _listed(source, each.silent, _CHANGES_NOTHING)
    ]
    return (*unknown, *silent)


def _listed(source: Source, keys: Sequence[str], remark: str) -> list[str]:
    """Name keys with their document; of a text that is nothing but keys, how many more."""
    listed = [f"{source.name}: {key[:LONGEST_KEY]}{remark}" for key in keys[:MOST_LISTED]]
    more = len(keys) - len(listed)
    return [*listed, f"{source.name}: {more} more keys{remark}"] if more else listed
