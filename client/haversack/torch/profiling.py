"""A model's profile: what each of its blocks costs under each option, without its memory.

The step is run once per option under fake tensors, loss and backward included, with that option on
every block that can take it; figures of all blocks are read off each run. Times are a roofline's.
"""

from collections.abc import Iterable, Mapping, Sequence

from torch import nn

from haversack.errors import InvalidRequestError
from haversack.profile import Profile
from haversack.torch.blocks import detected_blocks, named_blocks
from haversack.torch.fake_step import FakeStep, check_workload
from haversack.torch.figures import figures, held_bytes
from haversack.torch.policies import policies_of
from haversack.torch.roofline import Roofline
from haversack.torch.tables import Run, profile_of
from haversack.torch.watching import Watch
from haversack.torch.workload import Workload


def profile(
    workload: Workload, *, blocks: Sequence[str] | None = None, roofline: Roofline | None = None
) -> Profile:
    """Profile a training step; gives a table of options for each block, to plan with.

    ``blocks`` are names of modules; without them those of the workload are taken, else the
    children of the model's ``ModuleList``s. Nothing is computed and no memory taken; the model is
    left as it was. Raises ``InvalidRequestError`` where no blocks are found, and
    ``NotSupportedError`` with the module where shapes or the path depend on data, a block runs
    twice or inside another, or a backward runs inside the forward.
    """
    model = check_workload(workload)
    chosen = _blocks(model, workload, blocks)
    rates = roofline or Roofline()
    saved = _run(workload, chosen, {}, rates)
    open_blocks = [name for name in saved.watch.order if saved.watch.seen[name].may_recompute]
    runs = [saved]
    if open_blocks:
        runs.append(_run(workload, chosen, dict.fromkeys(open_blocks, "recompute"), rates))
        operations = {name: saved.watch.seen[name].savable for name in open_blocks}
        runs += [_run(workload, chosen, options, rates) for options in policies_of(operations)]
    return profile_of(model, chosen, runs)


def _blocks(
    model: nn.Module, workload: Workload, names: Sequence[str] | None
) -> dict[str, nn.Module]:
    asked = names if names is not None else workload.regions
    found = detected_blocks(model) if asked is None else named_blocks(model, asked, "blocks")
    if not found:
        raise InvalidRequestError(
            "the model has no ModuleList whose children could be its blocks; name them",
            field="blocks",
        )
    return found


def _run(
    workload: Workload, blocks: Iterable[str], options: Mapping[str, str], rates: Roofline
) -> Run:
    watch = Watch(blocks, rates)
    FakeStep(workload, watch, options).run()
    events = watch.record.events
    return Run(options, watch, figures(events, watch.parts), held_bytes(events))
