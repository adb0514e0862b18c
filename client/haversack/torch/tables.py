"""Runs of a step, one per option, put together as a profile.

Parts between blocks have one option: they are saved whatever is chosen. Where they, or what stays,
differ from run to run, the largest counts.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from haversack.basis import Basis
from haversack.errors import NotSupportedError
from haversack.profile import OptionTable, Profile, ProfileBlock
from haversack.torch.blocks import digest, fingerprint
from haversack.torch.divided import divided
from haversack.torch.figures import Figures
from haversack.torch.optimizers import NO_OPTIMIZER
from haversack.torch.policy import parsed
from haversack.torch.roofline import whole_ns
from haversack.torch.states import state_bytes
from haversack.torch.watching import Seen

OF_FAKES = (
    "times: they are a roofline's, of operations one by one; nothing was timed",
    "kernels of other devices than the CPU, which may save other tensors",
)
NOT_PROFILED = (
    "workspaces of kernels, and what the allocator adds",
    NO_OPTIMIZER,
    *OF_FAKES,
)


@dataclass(frozen=True, slots=True)
class Run:
    """One step: the option of each block that took one, and the figures of all parts."""

    options: Mapping[str, str]
    order: Sequence[str]
    figures: Sequence[Figures]
    held_bytes: Sequence[int]
    recomputed_ns: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Row:
    option: str
    retained_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int
    extra_ns: int

    def is_beaten_by(self, other: "_Row") -> bool:
        mine, others = self.costs(), other.costs()
        return mine != others and all(b <= a for a, b in zip(mine, others, strict=True))

    def or_more(self, other: "_Row") -> "_Row":
        """Take the larger of each figure."""
        return _Row(self.option, *map(max, self.costs(), other.costs()))

    def costs(self) -> tuple[int, int, int, int]:
        return (
            self.retained_bytes,
            self.forward_peak_bytes,
            self.backward_peak_bytes,
            self.extra_ns,
        )


def profile_of(
    model: nn.Module,
    blocks: Mapping[str, nn.Module],
    seen: Mapping[str, Seen],
    runs: Sequence[Run],
    depending: Collection[int] = (),
) -> Profile:
    """Put runs together; the first has every block saved."""
    order = runs[0].order
    if any(run.order != order for run in runs):
        raise NotSupportedError("the model's blocks run in another order from step to step")
    parts = list(_parts(order, runs))
    tables = list(dict.fromkeys(table for _, _, table in parts))
    ran = {name: blocks[name] for name in order}
    sizes, shapes = _parameter_bytes(model, ran), divided(model, ran)
    found = tuple(
        replace(
            _block(name, part, runs, blocks.get(name), seen.get(name, Seen())),
            table=tables.index(table),
            parameter_bytes=sizes.get(name, 0),
            parameters=shapes.get(name, ()),
            # What another generator draws may decide its path as data do.
            data_dependent=part in depending or seen.get(name, Seen()).draws_elsewhere,
            held_by_caller_bytes=held,
        )
        for (part, name, table), held in zip(parts, _held_bytes(parts, runs), strict=True)
    )
    return Profile(
        fingerprint=digest(f"{each.name} {each.fingerprint}" for each in found),
        model_fingerprint=fingerprint(model),
        basis=Basis.PROFILED,
        device="cpu",
        region_bytes=state_bytes(),
        torch_version=torch.__version__,
        blocks=found,
        tables=tuple(tables),
        held_by_caller_bytes=max(sum(run.held_bytes) for run in runs),
        model_forward_peak_bytes=max(run.figures[-1].model_forward_peak_bytes for run in runs),
        model_backward_peak_bytes=max(run.figures[-1].model_backward_peak_bytes for run in runs),
        not_profiled=(*NOT_PROFILED, *_left_out(blocks, order)),
    )


def _held_bytes(
    parts: Sequence[tuple[int, str, OptionTable]], runs: Sequence[Run]
) -> Iterator[int]:
    """Give what the caller holds of each part, and of those before it that are left out."""
    begins = 0
    for part, _, _ in parts:
        yield max(sum(run.held_bytes[begins : part + 1]) for run in runs)
        begins = part + 1


def _left_out(blocks: Mapping[str, nn.Module], order: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name}: it did not run in this step" for name in blocks if name not in order)


def _parts(order: Sequence[str], runs: Sequence[Run]) -> Iterator[tuple[int, str, OptionTable]]:
    """Give the parts of the chain with their tables; empty ones between blocks are left out."""
    yield 0, f"(before {order[0]})", _table([_between(0, runs)])
    for place, name in enumerate(order):
        yield 2 * place + 1, name, _table(_rows(2 * place + 1, name, runs))
        after = _between(2 * place + 2, runs)
        if place + 1 == len(order) or any(after.costs()):
            yield 2 * place + 2, f"(after {name})", _table([after])


def _between(part: int, runs: Sequence[Run]) -> _Row:
    return functools.reduce(_Row.or_more, (_row(part, run, runs, option="save") for run in runs))


def _rows(part: int, name: str, runs: Sequence[Run]) -> list[_Row]:
    """Give a block's options: save, recompute, and the policies that no other option beats."""
    rows: dict[str, _Row] = {}
    for run in runs:
        row = _row(part, run, runs, option=run.options.get(name, "save"))
        rows[row.option] = row.or_more(rows.get(row.option, row))
    return [
        row
        for row in rows.values()
        if row.option in ("save", "recompute")
        or not any(row.is_beaten_by(other) for other in _rivals(row, rows.values()))
    ]


def _rivals(row: _Row, rows: Iterable[_Row]) -> list[_Row]:
    """Give what may displace a policy: a plain one stays beside cuts, as others know it too."""
    return [other for other in rows if _is_cut(row) or not _is_cut(other)]


def _is_cut(row: _Row) -> bool:
    policy = parsed(row.option)
    return policy is not None and bool(policy.left_out)


def _row(part: int, run: Run, runs: Sequence[Run], *, option: str) -> _Row:
    figures = run.figures[part]
    # What passes by may do so in one run, and in another be retained by its maker.
    passing = max(each.figures[part].passing_bytes for each in runs)
    return _Row(
        option=option,
        retained_bytes=figures.retained_bytes,
        forward_peak_bytes=figures.forward_peak_bytes + passing,
        backward_peak_bytes=figures.backward_peak_bytes,
        extra_ns=whole_ns(run.recomputed_ns[part]),
    )


def _table(rows: Sequence[_Row]) -> OptionTable:
    return OptionTable(
        option=tuple(row.option for row in rows),
        retained_bytes=tuple(row.retained_bytes for row in rows),
        forward_peak_bytes=tuple(row.forward_peak_bytes for row in rows),
        backward_peak_bytes=tuple(row.backward_peak_bytes for row in rows),
        extra_ns=tuple(row.extra_ns for row in rows),
    )


def _parameter_bytes(model: nn.Module, blocks: Mapping[str, nn.Module]) -> dict[str, int]:
    """Give each parameter to the first block that has it, and the rest to what is before them."""
    counted: set[int] = set()

    def new_bytes(module: nn.Module) -> int:
        new = [each for each in module.parameters() if id(each) not in counted]
        counted.update(map(id, new))
        return sum(each.numel() * each.element_size() for each in new)

    sizes = {name: new_bytes(block) for name, block in blocks.items()}
    return {**sizes, f"(before {next(iter(blocks))})": new_bytes(model)}


def _block(
    name: str,
    part: int,
    runs: Sequence[Run],
    block: nn.Module | None,
    seen: Seen,
) -> ProfileBlock:
    return ProfileBlock(
        name=name,
        table=0,
        gradient_bytes=max(run.figures[part].gradient_bytes for run in runs),
        arriving_bytes=max(run.figures[part].passing_bytes for run in runs),
        leaving_bytes=max(run.figures[part].leaving_bytes for run in runs),
        waiting_bytes=max(
            (
                run.figures[part].waiting_bytes
                for run in runs
                if run.options.get(name) == "recompute"
            ),
            default=None,
        ),
        draws_random=seen.draws or seen.draws_elsewhere,
        mutated_buffers=seen.mutated_buffers,
        has_collectives=seen.has_collectives,
        mutates_inputs=seen.mutates_inputs,
        fingerprint=fingerprint(block) if block is not None else "",
    )
