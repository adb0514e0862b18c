"""A model's profile: what each of its blocks costs under each option, without its memory.

The step is run once per option under fake tensors, loss and backward included, with that option on
every block that can take it; figures of all blocks are read off each run. Times are a roofline's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from torch import nn

from haversack import spelling
from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.profile import Profile
from haversack.torch import casting
from haversack.torch.blocks import chained_blocks, detected_blocks, named_blocks
from haversack.torch.fake_step import check_workload
from haversack.torch.optimizers import with_surroundings
from haversack.torch.policies import cuts_of, policies_of
from haversack.torch.policy import parsed
from haversack.torch.real_step import device_of, on_device
from haversack.torch.roofline import Roofline
from haversack.torch.runs import Runs
from haversack.torch.segment_figures import inside_of, longest_segments, with_segments
from haversack.torch.skips import with_skips
from haversack.torch.tables import Run, profile_of
from haversack.torch.workload import Workload
from haversack.training import Precision

Progress = Callable[[str, int, int], object]


def profile(
    workload: Workload,
    *,
    blocks: Sequence[str] | None = None,
    roofline: Roofline | None = None,
    device: str | None = None,
    precision: Precision | str = Precision.UNSPECIFIED,
    progress: Progress | None = None,
) -> Profile:
    """Profile a training step; gives a table of options for each block, to plan with.

    ``blocks`` are names of modules, or of ``ModuleList``s of them; without them those of the
    workload are taken, else the children of all ``ModuleList``s, else of ``Sequential``s and
    ``ModuleDict``s, else the model's own. Nothing is computed and no memory taken, but by
    recurrent layers on the CPU: their kernel runs once on zeros for each layout, to know its
    workspace. The model is left as it was, and may be on ``meta``. With a ``device``, which is
    where the model is, steps are run there for real, and times are measured. With the
    ``precision`` FP32_BF16_COMPUTE, or "fp32-bf16-compute", the step is that of FSDP2's mixed
    precision: fp32 parameters are computed with in bf16.
    ``progress`` is called before each step with what it is for, the steps done and the number of
    all. Raises ``InvalidRequestError`` where no blocks are found, and ``NotSupportedError`` with
    the module where shapes or the path depend on data, a block runs twice or inside another, or a
    backward runs inside the forward.
    """
    model, numbers = check_workload(workload), casting.precision_of(precision)
    chosen = _blocks(model, workload, blocks)
    tell = progress or _say_nothing
    tell("a first forward", 0, 1)
    real = device_of(workload, device) if device is not None else None
    computed_in = casting.computed_in(model, numbers, device)
    runs = Runs(workload, chosen, roofline or Roofline(), real, computed_in)
    _check_ran(chosen, runs)
    steps = list(_options(runs))
    refused = []
    for done, options in enumerate(steps):
        tell(_purpose(options), done + 1, len(steps) + 2)
        refused += _tried(runs, options)
    tell("segments", len(steps) + 1, len(steps) + 2)
    read = runs.read()
    found = profile_of(model, chosen, runs.seen, read, runs.depending)
    found = replace(found, precision=numbers)
    found = replace(found, not_profiled=(*found.not_profiled, *dict.fromkeys(refused)))
    found = with_skips(found, runs.skips(), runs.order)
    found = with_surroundings(_with_segments(found, runs, read), workload, model)
    return found if real is None else on_device(found, real)


def _check_ran(blocks: Mapping[str, nn.Module], runs: Runs) -> None:
    """Refuse blocks that are never called, and a choice among them by draws that nobody replays."""
    if not runs.order:
        raise InvalidRequestError(
            f"none of the blocks ran, such as {next(iter(blocks))}: the model may read "
            "what they have, but does not call them; name modules that it calls",
            field="blocks",
        )
    skipped = [name for name in blocks if name not in runs.order]
    if skipped and runs.draws_between:
        raise NotSupportedError(
            f"{skipped[0]} did not run, and the model draws from Python's or NumPy's generator "
            "between its blocks: if it chooses so which of them run, no figure holds for the next "
            "step; profile with that switched off (layerdrop, stochastic depth), which is the most "
            "that a step needs"
        )


def _tried(runs: Runs, options: Mapping[str, str]) -> list[str]:
    """Run a step; say why policies that leave something out cannot be, where they cannot."""
    try:
        runs.add(options)
    except NotSupportedError as refused:
        policies = map(parsed, options.values())
        if not any(policy is not None and policy.left_out for policy in policies):
            raise
        return [f"a policy that leaves results out: {refused.message}"]
    return []


def _say_nothing(what: str, done: int, steps: int) -> None:
    pass


def _purpose(options: Mapping[str, str]) -> str:
    return next(iter(options.values()), "save").partition(" ")[0]


def _options(runs: Runs) -> Iterator[dict[str, str]]:
    """Give the options of each step, by block; those of the first are all to save."""
    yield {}
    if runs.open_blocks:
        yield dict.fromkeys(runs.open_blocks, "recompute")
        plain = policies_of({name: runs.seen[name].savable for name in runs.open_blocks})
        yield from plain
        yield from (cut for cut in cuts_of(runs.results) if cut not in plain)


def _with_segments(found: Profile, runs: Runs, read: Sequence[Run]) -> Profile:
    segments = longest_segments(runs.order, runs.keeping_blocks, [run.figures for run in read])
    if runs.draws_between:
        said = (
            "segments: the model may leave out blocks, as it draws between them by other generators"
        )
        return replace(found, not_profiled=(*found.not_profiled, said))
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
        listed = [spelling.text(name, "blocks") for name in spelling.sequence(asked, "blocks")]
        found = named_blocks(model, list(_members(model, listed)), "blocks")
    else:
        found = detected_blocks(model) or chained_blocks(model)
    if not found:
        raise InvalidRequestError(
            "the model has no ModuleList, Sequential or ModuleDict whose children could be its "
            "blocks; name them",
            field="blocks",
        )
    return found


def _members(model: nn.Module, names: Sequence[str]) -> Iterator[str]:
    """Give the children of a list that is named, which does not run by itself."""
    modules = dict(model.named_modules())
    for name in names:
        listed = modules.get(name)
        if isinstance(listed, nn.ModuleList):
            yield from (f"{name}.{child}" for child, _ in listed.named_children())
        else:
            yield name
