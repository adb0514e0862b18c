"""The portable profile of a model: what each block costs under each of its options."""

from dataclasses import dataclass

from haversack import checks
from haversack.basis import Basis
from haversack.errors import Violation, check


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionTable:
    """The ways to run a block, as columns of equal length."""

    option: tuple[str, ...] = ()
    retained_bytes: tuple[int, ...] = ()
    forward_peak_bytes: tuple[int, ...] = ()
    backward_peak_bytes: tuple[int, ...] = ()
    extra_ns: tuple[int, ...] = ()

    def violations(self, path: str) -> list[Violation]:
        """Check that the columns are equally long, integers, and not negative."""
        names = ("retained_bytes", "forward_peak_bytes", "backward_peak_bytes", "extra_ns")
        lengths = {name: len(getattr(self, name)) for name in ("option", *names)}
        found = checks.equal_lengths(path, lengths)
        for name in names:
            found += checks.column(f"{path}.{name}", getattr(self, name))
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileParameter:
    """A parameter as FSDP2 divides it: by its first dimension, ``rows`` long."""

    rows: int
    row_bytes: int
    frozen: bool = False

    def __post_init__(self) -> None:
        check(checks.integer("rows", self.rows) + checks.integer("row_bytes", self.row_bytes))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileBlock:
    """One block of the chain, with the index of its table."""

    name: str
    table: int
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    draws_random: bool = False
    mutated_buffers: tuple[str, ...] = ()
    has_collectives: bool = False
    mutates_inputs: bool = False
    data_dependent: bool = False
    fingerprint: str = ""
    segment_bytes: int | None = None
    segment_peak_bytes: int | None = None
    forward_ns: int | None = None
    parameters: tuple[ProfileParameter, ...] = ()
    arriving_bytes: int = 0
    leaving_bytes: int = 0
    waiting_bytes: int | None = None

    def __post_init__(self) -> None:
        found = checks.integer("table", self.table)
        for name in ("parameter_bytes", "gradient_bytes", "arriving_bytes", "leaving_bytes"):
            found += checks.integer(name, getattr(self, name))
        for name in ("segment_bytes", "segment_peak_bytes", "forward_ns", "waiting_bytes"):
            found += checks.optional_integer(name, getattr(self, name))
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Blocks in the order of the forward, and the tables they share."""

    format_version: int = 1
    fingerprint: str = ""
    basis: Basis = Basis.UNSPECIFIED
    device: str = ""
    torch_version: str = ""
    blocks: tuple[ProfileBlock, ...] = ()
    tables: tuple[OptionTable, ...] = ()
    held_by_caller_bytes: int = 0
    workspace_bytes: int = 0
    optimizer_state_bytes: int | None = None
    optimizer_step_bytes: int = 0
    standing_bytes: int = 0
    region_bytes: int = 0
    model_forward_peak_bytes: int | None = None
    model_backward_peak_bytes: int | None = None
    not_profiled: tuple[str, ...] = ()
    model_fingerprint: str = ""

    def __post_init__(self) -> None:
        found = checks.integer("profile.format_version", self.format_version, least=1, most=1)
        for index, table in enumerate(self.tables):
            found += table.violations(f"profile.tables[{index}]")
        for name in (
            "held_by_caller_bytes",
            "optimizer_step_bytes",
            "standing_bytes",
            "region_bytes",
        ):
            found += checks.integer(f"profile.{name}", getattr(self, name))
        for name in (
            "optimizer_state_bytes",
            "model_forward_peak_bytes",
            "model_backward_peak_bytes",
        ):
            found += checks.optional_integer(f"profile.{name}", getattr(self, name))
        last = len(self.tables) - 1
        for index, block in enumerate(self.blocks):
            found += checks.integer(f"profile.blocks[{index}].table", block.table, most=last)
        check(found)
