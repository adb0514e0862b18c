"""The portable profile of a model: what each block costs under each of its options."""

from collections.abc import Iterator
from dataclasses import dataclass

from haversack import checks
from haversack.basis import Basis
from haversack.errors import Violation, check
from haversack.training import Optimizer, Precision


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
    held_by_caller_bytes: int = 0

    def __post_init__(self) -> None:
        found = checks.integer("table", self.table)
        passing = ("arriving_bytes", "leaving_bytes", "held_by_caller_bytes")
        for name in ("parameter_bytes", "gradient_bytes", *passing):
            found += checks.integer(name, getattr(self, name))
        for name in ("segment_bytes", "segment_peak_bytes", "forward_ns", "waiting_bytes"):
            found += checks.optional_integer(name, getattr(self, name))
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkipKeeper:
    """A block that keeps tensors under some of its options."""

    block: int
    option: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SkipTensor:
    """Tensors of one block that are alive for as long as a block that keeps them."""

    size_bytes: int
    maker: int
    read_until: int
    kept_from: int | None = None
    keepers: tuple[SkipKeeper, ...] = ()

    def violations(self, path: str, last: int) -> list[Violation]:
        """Check the order of the blocks that are named; ``last`` is the index of the last one."""
        found = checks.integer(f"{path}.size_bytes", self.size_bytes)
        found += checks.integer(f"{path}.maker", self.maker, most=last)
        found += checks.integer(f"{path}.read_until", self.read_until, most=last)
        if found:
            return found
        found += checks.integer(f"{path}.read_until", self.read_until, least=self.maker)
        until = {"least": self.maker, "most": self.read_until}
        found += checks.optional_integer(f"{path}.kept_from", self.kept_from, **until)
        for index, keeper in enumerate(self.keepers):
            found += checks.integer(f"{path}.keepers[{index}].block", keeper.block, **until)
        return found


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
    optimizer: Optimizer = Optimizer.UNSPECIFIED
    optimizer_class: str = ""
    loss: str = ""
    timed_on: str = ""
    notes: tuple[str, ...] = ()
    skip_tensors: tuple[SkipTensor, ...] = ()
    precision: Precision = Precision.UNSPECIFIED

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
        for index, skip in enumerate(self.skip_tensors):
            found += skip.violations(f"profile.skip_tensors[{index}]", len(self.blocks) - 1)
        check(found)
        check(list(self._not_retained()))

    def _not_retained(self) -> Iterator[Violation]:
        """Find skip tensors that are more than their maker retains, which has them always."""
        sums: dict[int, int] = {}
        for index, skip in enumerate(self.skip_tensors):
            block = self.blocks[skip.maker]
            least = min(self.tables[block.table].retained_bytes, default=0)
            sums[skip.maker] = sums.get(skip.maker, 0) + skip.size_bytes
            if sums[skip.maker] > least:
                yield Violation(
                    f"profile.skip_tensors[{index}].size_bytes",
                    f"{sums[skip.maker]} bytes of {block.name} skip over blocks, of which it "
                    f"retains {least} under some option; at most these would do",
                )
