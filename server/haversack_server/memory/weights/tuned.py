"""A model of which some weights are frozen: every parameter marked, adapters added to its units."""

from dataclasses import replace

from haversack_server.memory.architecture import Architecture, Parameter, Unit, UnitKind
from haversack_server.memory.tuning import Stored, Tuning, stored_bytes
from haversack_server.memory.weights.modules import Parameters
from haversack_server.memory.weights.names import Names, names_of


def tuned(model: Architecture, tuning: Tuning, compute_bytes: int) -> Architecture:
    """Freeze what does not train, and add the adapters' parameters to each unit.

    Two adapter weights for a product of ``outputs`` and ``inputs``: (rank, inputs), (outputs,
    rank).
    """
    roles = _roles(names_of(model.family))
    known: dict[int, Parameters] = {}
    units = []
    for unit in model.units:
        key = id(unit.parameters)
        if key not in known:
            known[key] = _unit(unit, roles, tuning, compute_bytes, model)
        variant = replace(unit.variant, tuning=tuning) if unit.variant else None
        units.append(replace(unit, parameters=known[key], variant=variant))
    return replace(model, tuning=tuning, units=_shared_variants(tuple(units)))


def _shared_variants(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """Let equal variants be one object, as option tables look for."""
    known: dict[Architecture, Architecture] = {}
    return tuple(
        replace(unit, variant=known.setdefault(unit.variant, unit.variant))
        if unit.variant
        else unit
        for unit in units
    )


def _roles(names: Names) -> dict[str, frozenset[str]]:
    """Name the roles of each module that may have an adapter."""
    joined = frozenset({"query", "key", "value"})
    return {
        names.query: frozenset({"query"}),
        names.key: frozenset({"key"}),
        names.value: frozenset({"value"}),
        names.joined: joined,
        names.output: frozenset({"output"}),
        names.gate: frozenset({"gate"}),
        names.up: frozenset({"up"}),
        names.gate_and_up: frozenset({"gate", "up"}),
        names.down: frozenset({"down"}),
        names.head: frozenset({"head"}),
        f"{names.shared}.gate_proj": frozenset({"gate"}),
        f"{names.shared}.up_proj": frozenset({"up"}),
        f"{names.shared}.down_proj": frozenset({"down"}),
    }


def _unit(
    unit: Unit,
    roles: dict[str, frozenset[str]],
    tuning: Tuning,
    compute_bytes: int,
    model: Architecture,
) -> Parameters:
    made: list[Parameter] = []
    for parameter in unit.parameters:
        made.append(_marked(unit.kind, parameter, tuning, compute_bytes))
        module, _, last = parameter.name.rpartition(".")
        adapted = (
            tuning.rank and last == "weight" and tuning.targets & roles.get(module, frozenset())
        )
        if adapted:
            made += _adapter(
                module, parameter, tuning.rank, transposed=_transposed(model, parameter)
            )
    return tuple(made)


def _transposed(model: Architecture, parameter: Parameter) -> bool:
    return names_of(model.family).transposed and len(parameter.shape) == 2


def _adapter(module: str, weight: Parameter, rank: int, *, transposed: bool) -> Parameters:
    """The small product is whole on every tensor-parallel rank where the weight's inputs are."""
    outputs, inputs = weight.shape[::-1] if transposed else weight.shape
    by_inputs = weight.tensor_parallel_axis == (0 if transposed else 1)
    return (
        Parameter(f"{module}.lora_A.weight", (rank, inputs), 1 if by_inputs else None),
        Parameter(f"{module}.lora_B.weight", (outputs, rank), None if by_inputs else 0),
    )


def _marked(kind: UnitKind, parameter: Parameter, tuning: Tuning, compute_bytes: int) -> Parameter:
    if _trains(kind, parameter, tuning):
        return parameter
    quantized = len(parameter.shape) > 1 and (
        kind is UnitKind.LAYER or (kind is UnitKind.HEAD and tuning.head_quantized)
    )
    stored = tuning.stored if quantized else Stored.COMPUTE
    return replace(parameter, frozen_bytes=stored_bytes(stored, parameter.shape, compute_bytes))


def _trains(kind: UnitKind, parameter: Parameter, tuning: Tuning) -> bool:
    if kind is UnitKind.EMBEDDING:
        return tuning.embedding_trains
    if len(parameter.shape) == 1 and "norm" in parameter.name.lower():
        return tuning.norms_train
    return kind is UnitKind.HEAD and tuning.head_trains
