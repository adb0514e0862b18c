"""A plan, put into effect on a model, and taken back.

Each block that a plan recomputes runs as a region of ``torch.utils.checkpoint``, those of a segment
as one together; nothing else of the model changes but ``config.use_cache``, which is False
meanwhile, as transformers itself has it under its own checkpointing. Knows not why a plan is as it
is.
"""

from collections.abc import Iterator, Mapping
from types import TracebackType

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from haversack.errors import InvalidRequestError, NotSupportedError, Violation, check
from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch.blocks import fingerprint, inner_module, named_blocks
from haversack.torch.compiled import refuse_wrapped
from haversack.torch.given import check_plan
from haversack.torch.planned_segments import segments_of
from haversack.torch.policy import Policy, parsed
from haversack.torch.regions import Region, caching_configs
from haversack.torch.replay import ContextFn
from haversack.torch.segments import Member, Segment

Placed = Region | Member


class Applied:
    """A plan in effect on a model, until ``remove()`` or the end of a ``with``.

    ``options`` has the option of each block that is not simply saved.
    """

    def __init__(
        self, regions: list[tuple[nn.Module, Placed]], options: dict[str, str], model: nn.Module
    ) -> None:
        self.options = options
        self._regions = regions
        self._caching = list(caching_configs(model))
        for module, region in regions:
            region.put(module)
        for config in self._caching:
            config.use_cache = False

    def remove(self) -> None:
        """Put the model back as it was; a second time does nothing."""
        for module, region in self._regions:
            region.remove(module)
        for config in self._caching:
            config.use_cache = True
        self._regions, self._caching = [], []

    def leave_generators(self) -> None:
        """Restore no generators in recomputations, as under fake tensors."""
        for _, region in self._regions:
            region.leave_generators()

    def __enter__(self) -> "Applied":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def apply(model: nn.Module, plan: Plan, *, context_fn: ContextFn | None = None) -> Applied:
    """Run each block of the model by the option that the plan chose for it.

    Before or after ``fully_shard`` or ``DistributedDataParallel``. Results are equal to the bit:
    the random sources of PyTorch are replayed, others by ``context_fn`` (``replay_context``).
    Raises ``InvalidRequestError`` for a plan of another model, with the block at which it shows,
    for a plan without actions, and where a plan is in effect already; ``NotSupportedError`` for a
    block whose recomputation would change its buffers.
    """
    check_plan(plan)
    inner = inner_module(model)
    if hasattr(inner, "_orig_mod"):
        raise InvalidRequestError(
            "the model is compiled, and its blocks have other names; apply the plan before "
            "torch.compile",
            field="model",
        )
    actions = _changing(plan)
    names = [action.block for action in actions]
    refuse_wrapped(inner, names)
    check(_other_model(inner, plan))
    blocks = named_blocks(inner, names, "plan.actions")
    policies, segments = _policies(plan, actions), segments_of(plan)
    segmented = {name for planned in segments for name in planned.blocks}
    for name, block in blocks.items():
        _refuse(inner, name, block)
    regions: list[tuple[nn.Module, Placed]] = [
        (block, Region(name, block, context_fn=context_fn, selective=_selective(policies[name])))
        for name, block in blocks.items()
        if name not in segmented
    ]
    for planned in segments:
        own = {name: blocks[name] for name in planned.blocks}
        around = [[module for _, module in _outwards(inner, name)] for name in own]
        segment = Segment(own, nest=planned.nest, context_fn=context_fn, around=around)
        regions += zip(own.values(), segment.members, strict=True)
    return Applied(regions, {action.block: action.option for action in actions}, inner)


def _changing(plan: Plan) -> list[BlockAction]:
    if not plan.actions:
        raise InvalidRequestError(
            f"the plan has no actions ({plan.reason or plan.status.name}); give one that was made "
            "for a model",
            field="plan.actions",
        )
    return [action for action in plan.actions if action.option != "save"]


def _selective(policy: Policy | None) -> ContextFn | None:
    return policy.contexts() if policy is not None else None


def _policies(plan: Plan, actions: list[BlockAction]) -> dict[str, Policy | None]:
    found = {action.block: parsed(action.option) for action in actions}
    check(
        [
            Violation(
                f"plan.actions[{place}].option",
                f"{action.option[:60]!r} cannot be applied; save, recompute or selective with "
                "operations would do",
            )
            for place, action in enumerate(plan.actions)
            if action.option not in ("save", "recompute") and found[action.block] is None
        ]
    )
    return found


def _other_model(model: nn.Module, plan: Plan) -> list[Violation]:
    """Find the blocks whose names or shapes are not those of the model that was planned.

    Where all of them are, what is around them may still be another model's.
    """
    modules = dict(model.named_modules())
    found = [
        Violation(f"plan.actions[{place}]", _difference(modules.get(action.block), action))
        for place, action in enumerate(plan.actions)
        if action.fingerprint and _fingerprint(modules.get(action.block)) != action.fingerprint
    ]
    if found or plan.model_fingerprint in ("", fingerprint(model)):
        return found
    return [Violation("plan.model_fingerprint", _around(modules, plan))]


def _around(modules: Mapping[str, nn.Module], plan: Plan) -> str:
    """Say what this model has around the plan's blocks; first what is beside them in a list."""
    planned = [action.block for action in plan.actions if action.block in modules]
    beside = [
        f"{parent}.{name}" if parent else name
        for parent in dict.fromkeys(each.rpartition(".")[0] for each in planned)
        for name, _ in modules[parent].named_children()
    ]
    more = next((each for each in beside if each not in planned), None)
    such = f", such as {more}, which the plan does not have" if more else ""
    return (
        "the plan is of another model: its blocks are here, but what is around them has other "
        f"parameters or buffers{such}; plan for this model anew"
    )


def _fingerprint(block: nn.Module | None) -> str:
    return fingerprint(block) if block is not None else ""


def _difference(block: nn.Module | None, action: BlockAction) -> str:
    if block is None:
        return f"the plan is of another model: this one has no {action.block}"
    return (
        f"the plan is of another model: parameters and buffers of {action.block} have other names, "
        "shapes or types; plan for this model anew"
    )


def _refuse(model: nn.Module, name: str, block: nn.Module) -> None:
    for path, outer in _outwards(model, name):
        if getattr(outer, "gradient_checkpointing", False):
            raise InvalidRequestError(
                f"{path or 'the model'} checkpoints by itself; switch that off before",
                field="model",
            )
        _refuse_region(path, outer)
    for path, module in block.named_modules():
        _refuse_region(f"{name}.{path}", module)
        if isinstance(module, _BatchNorm) and module.track_running_stats and module.training:
            raise NotSupportedError(
                f"{name} cannot be recomputed: {path or 'it'} would change its running statistics "
                "twice; let the plan save it (must_save)"
            )


def _refuse_region(path: str, module: nn.Module) -> None:
    if isinstance(module.__dict__.get("forward"), Region | Member):
        raise InvalidRequestError(
            f"a plan is in effect on {path.rstrip('.') or 'the model'} already; remove() it before",
            field="model",
        )


def _outwards(model: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Give a block and every module around it, the model itself last."""
    while name:
        yield name, model.get_submodule(name)
        name = name.rpartition(".")[0]
    yield "", model
