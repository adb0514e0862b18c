"""A model's profile: what each of its blocks costs under each option, without its memory.

The step is run once per option under fake tensors, loss and backward included, with that option on
every block that can take it; figures of all blocks are read off each run. Times are a roofline's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from torch import nn

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.profile import Profile
from haversack.torch.blocks import chained_blocks, detected_blocks, named_blocks
from haversack.torch.fake_step import check_workload
from haversack.torch.optimizers import with_surroundings
from haversack.torch.policies import policies_of
from haversack.torch.roofline import Roofline
from haversack.torch.runs import Runs
from haversack.torch.segment_figures import inside_of, longest_segments, with_segments
from haversack.torch.tables import Run, profile_of
from haversack.torch.workload import Workload

Progress = Callable[[str, int, int], object]


def profile(
    workload: Workload,
    *,
    blocks: Sequence[str] | None = None,
    roofline: Roofline | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Profile a training step; gives a table of options for each block, to plan with.

    ``blocks`` are names of modules; without them those of the workload are taken, else the
    children of the model's ``ModuleList``s, else of its ``Sequential``s, else its own. Nothing is
    computed and no memory taken; the model is left as it was, and may be on ``meta``. ``progress``
    is called before each step with what it is for, the steps done and the number of all. Raises
    ``InvalidRequestError`` where no blocks are found, and ``NotSupportedError`` with the module
    where shapes or the path depend on data, a block runs twice or inside another, or a backward
    runs inside the forward.
    """
    model = check_workload(workload)
    chosen = _blocks(model, workload, blocks)
    tell = progress or _say_nothing
    tell("a first forward", 0, 1)
    runs = Runs(workload, chosen, roofline or Roofline())
    steps = list(_options(runs))
    for done, options in enumerate(steps):
        tell(_purpose(options), done + 1, len(steps) + 2)
        runs.add(options)
    tell("segments", len(steps) + 1, len(steps) + 2)
    read = runs.read()
    found = profile_of(model, chosen, runs.seen, read, runs.depending)
    return with_surroundings(_with_segments(found, runs, read), workload, model)


def _say_nothing(what: str, done: int, steps: int) -> None:
    pass


def _purpose(options: Mapping[str, str]) -> str:
    return next(iter(options.values()), "save").partition(" ")[0]


def _options(runs: Runs) -> Iterator[dict[str, str]]:
    """Give the options of each step, by block; those of the first are all to save."""
    yield {}
    if runs.open_blocks:
        yield dict.fromkeys(runs.open_blocks, "recompute")
        yield from policies_of({name: runs.seen[name].savable for name in runs.open_blocks})


def _with_segments(found: Profile, runs: Runs, read: Sequence[Run]) -> Profile:
    segments = longest_segments(runs.order, runs.keeping_blocks, [run.figures for run in read])
    if not segments:
        return found
    try:
        watch = runs.watched({}, segments)
    except NotSupportedError as refused:
        return replace(found, not_profiled=(*found.not_profiled, f"segments: {refused.message}"))
    return with_segments(found, inside_of(watch, segments, runs.repeats.stands_for))


def _blocks(
    model: nn.Module, workload: Workload, names: Sequence[str] | None
) -> dict[str, nn.Module]:
    asked = names if names is not None else workload.regions
    if asked is not None:
        found = named_blocks(model, asked, "blocks")
    else:
        found = detected_blocks(model) or chained_blocks(model)
    if not found:
        raise InvalidRequestError(
            "the model has no ModuleList or Sequential whose children could be its blocks; name "
            "them",
            field="blocks",
        )
    return found
