"""The step of a workload, run as often as its profile needs, each time by other options.

A first forward tells what each block does. Blocks that do the same in the same surroundings run
once in the steps after it; the others of them have stand-ins, so that depth costs little.
"""

import functools
import gc
import statistics
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from haversack.torch.fake_step import FakeStep
from haversack.torch.fakes import Fakes
from haversack.torch.figures import figures, held_by_part
from haversack.torch.owners import Owners, passing_places
from haversack.torch.policy import parsed
from haversack.torch.real_step import RealStep, TimedWatch
from haversack.torch.repeats import Repeats
from haversack.torch.roofline import Roofline
from haversack.torch.skips import Skip, StandIns, Step, skips_of
from haversack.torch.tables import Run
from haversack.torch.traces import TracingWatch
from haversack.torch.watching import Watch
from haversack.torch.workload import Workload

_TIMED = 3  # steps by whose median the time of recomputation is known


class Runs:
    """Runs steps of a workload under fake tensors, or with a ``device`` for real on that.

    ``order`` names the blocks as they ran, ``open_blocks`` those that may run twice; ``seen`` has
    what each of them did, ``results`` what each of the open ones made of what, ``depending`` the
    parts whose path depends on the arguments. ``draws_between``: the model may choose among its
    blocks by numbers of other generators than PyTorch's.
    """

    def __init__(
        self,
        workload: Workload,
        blocks: Mapping[str, nn.Module],
        roofline: Roofline,
        device: torch.device | None = None,
        computed_in: torch.dtype | None = None,
    ) -> None:
        self._device = device
        self._workload = workload
        self._blocks = blocks
        self._roofline = roofline
        self._fakes = Fakes(computed_in=computed_in)
        traced = TracingWatch(blocks, roofline)
        FakeStep(workload, traced, {}, fakes=self._fakes).run(backward=False)
        self.order, self.seen, self.depending = traced.order, traced.seen, traced.depending
        self.draws_between = traced.draws_between
        self.open_blocks = [name for name in self.order if self.seen[name].may_recompute]
        self.results = {name: traced.results_of(name) for name in self.open_blocks}
        self.repeats = _repeats(traced)
        self._charged: set[int] = set()
        self._stubs = {
            name: stub
            for name, stub in traced.stubs.items()
            if stub is not None and not self.repeats.is_run(self.part(name)) and device is None
        }
        self._steps: list[tuple[Mapping[str, str], Watch]] = []

    def part(self, name: str) -> int:
        """Give the part that a block is."""
        return 2 * self.order.index(name) + 1

    @property
    def keeping_blocks(self) -> list[str]:
        """Those of the open blocks that may be in a segment, once the steps are read.

        A segment is planned as if its input were on its maker's account, as it is for these.
        """
        return [
            name
            for name in self.open_blocks
            if self.repeats.stands_for[self.part(name)] not in self._charged
        ]

    def add(self, options: Mapping[str, str]) -> None:
        """Run a step with these options; the first has none: all blocks are saved."""
        self._steps.append((options, self.watched(options)))

    def watched(self, options: Mapping[str, str], segments: Iterable[Sequence[str]] = ()) -> Watch:
        """Run a step and give what was seen; figures of some blocks are those of others."""
        watch = Watch(self._blocks, self._roofline)
        if self._device is not None:
            return self._measured(watch, options, tuple(segments), self._device)
        step = FakeStep(
            self._workload, watch, options, segments, fakes=self._fakes, stubs=self._stubs
        )
        step.run()
        return watch

    def _measured(
        self,
        watch: Watch,
        options: Mapping[str, str],
        segments: Sequence[Sequence[str]],
        device: torch.device,
    ) -> Watch:
        """Run a step for real, then some for their time.

        The median counts, of all blocks that do the same in the same surroundings.
        """
        RealStep(self._workload, watch, options, segments, device=device).run()
        timed = [TimedWatch(self._blocks, self._roofline, device) for _ in range(_TIMED)]
        for each in timed:
            step = RealStep(self._workload, each, options, segments, device=device, is_timed=True)
            step.run()
        for name in self.order:
            alike = [
                each for each in self.order if self._stands_for(each) == self._stands_for(name)
            ]
            times_ns = [each.seen[other].recomputed_ns for each in timed for other in alike]
            watch.seen[name].recomputed_ns = statistics.median(times_ns)
        return watch

    def _stands_for(self, name: str) -> int:
        return self.repeats.stands_for[self.part(name)]

    def read(self) -> list[Run]:
        """Read the figures of all parts off each of the steps."""
        gc.collect()  # steps leave cycles behind, and no step collects them
        return [self._read(options, watch) for options, watch in self._steps]

    def skips(self) -> list[Skip]:
        """Find the tensors that skip over blocks."""
        stands_for = {self.part(name): self._stands_for(name) for name in self._stubs}
        steps = [
            Step(
                {self.part(name): option for name, option in options.items()},
                watch.record.events,
                self._owners(options),
            )
            for options, watch in self._steps
        ]
        return skips_of(steps, StandIns(stands_for, self._passing))

    @functools.cached_property
    def _passing(self) -> set[tuple[int, int]]:
        return passing_places(self._steps[0][1].record.events)

    def _owners(self, options: Mapping[str, str]) -> Owners:
        policies = {self.part(name): parsed(option) for name, option in options.items()}
        return Owners(
            open_parts={self.part(name) for name in self.open_blocks},
            again={self.part(name) for name, option in options.items() if option != "save"},
            passing=self._passing,
            policies={part: each.saved for part, each in policies.items() if each is not None},
        )

    def _read(self, options: Mapping[str, str], watch: Watch) -> Run:
        owners = self._owners(options)
        events = watch.record.events
        self._charged |= owners.charged_takers(events)
        found = figures(events, watch.parts, owners, watch.reruns)
        held = held_by_part(events, watch.parts)
        standing = self.repeats.stands_for
        return Run(
            options=options,
            order=watch.order,
            figures=[found[part] for part in standing],
            held_bytes=[held[part] for part in standing],
            recomputed_ns=[
                watch.seen[watch.order[part // 2]].recomputed_ns if part % 2 else 0.0
                for part in standing
            ],
        )


def _repeats(traced: TracingWatch) -> Repeats:
    needed = [
        2 * place + 1 for place, name in enumerate(traced.order) if traced.stubs[name] is None
    ]
    return Repeats(traced.traces.keys(traced.parts), needed)
