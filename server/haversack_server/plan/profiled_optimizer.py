"""What the optimizer of a profile's plan keeps beside parameters, and what its step takes.

Its own as it was stepped, or one that is named: then a profile has bytes of parameters, and the
optimizer's kind says how many copies of them there are. Knows no ranks.
"""

from dataclasses import replace

from haversack.errors import NotSupportedError
from haversack.profile import Profile
from haversack.run import Optimizer, OptimizerKernel, Training
from haversack_server.memory.optimizers.kinds import KINDS, Form, Kind
from haversack_server.memory.optimizers.temporaries import temporary_bytes
from haversack_server.memory.optimizers.tensors import Updated
from haversack_server.plan import profiled_types


def moments_bytes(training: Training, profile: Profile) -> tuple[int, tuple[str, ...]]:
    """Give the bytes of the optimizer's state: copies of what has gradients, and counters."""
    if has_its_own(training, profile):
        named = profile.optimizer.name if profile.optimizer else "the workload's own"
        own = f"optimizer: {named}, as it stepped when it was profiled"
        return profile.optimizer_state_bytes or 0, (own,)
    kind = _kind(training)
    # Gradients of arguments are among those of blocks, and have no moments.
    made = sum(block.gradient_bytes for block in profile.blocks)
    made = profiled_types.stored_bytes(profile, made)
    copied = min(made, sum(block.parameter_bytes for block in profile.blocks))
    counters = kind.counter_bytes * len(_trained(profile))
    return kind.moments * copied + counters, (
        _said(training, profile),
        "the optimizer's moments have the parameters' type",
    )


def _said(training: Training, profile: Profile) -> str:
    if not training.optimizer:
        return "optimizer: AdamW"
    instead = "" if profile.optimizer_state_bytes is None else ", in place of the profiled one"
    return f"optimizer: {training.optimizer.name}, as named{instead}"


def has_its_own(training: Training, profile: Profile) -> bool:
    """Whether the optimizer is the one that was profiled: there is one, and no other is named."""
    return not training.optimizer and profile.optimizer_state_bytes is not None


def step_bytes(training: Training, profile: Profile) -> tuple[int, tuple[str, ...]]:
    """Give what the optimizer's step takes beside its state, and say by which kernel."""
    if has_its_own(training, profile):
        return profile.optimizer_step_bytes, ()
    optimizer, kernel = training.optimizer or Optimizer.ADAMW, _kernel(training, profile)
    # What an earlier step was seen to need beyond its prediction; of no other optimizer's.
    seen = profile.optimizer_step_bytes if profile.optimizer_state_bytes is None else 0
    updated = Updated(elements=tuple(_trained(profile)))
    recipe = replace(profiled_types.BYTES, optimizer=optimizer, optimizer_kernel=kernel)
    taken = profiled_types.stored_bytes(profile, temporary_bytes(recipe, [updated]))
    said = f"the optimizer's kernel: {kernel.name.lower().replace('_', '-')}"
    # A step's number is made anew, too.
    return seen + taken + (_kind(training).counter_bytes if taken else 0), (said,)


def _kind(training: Training) -> Kind:
    optimizer = training.optimizer or Optimizer.ADAMW
    kind = KINDS[optimizer]
    if kind.form is not Form.WHOLE or kind.width is not None:
        raise NotSupportedError(
            f"training.optimizer: {optimizer.name} goes by shapes, and a profile has bytes; an "
            "optimizer that keeps whole copies would do, such as ADAMW or SGD_MOMENTUM"
        )
    return kind


def _kernel(training: Training, profile: Profile) -> OptimizerKernel:
    """Take the kernel that is named, else the one that torch.optim takes on the device."""
    kernels = _kind(training).kernels
    if training.optimizer_kernel in kernels:
        return training.optimizer_kernel
    default = OptimizerKernel.FOREACH
    if profile.device in ("", "cpu"):
        default = OptimizerKernel.FOR_LOOP
    return default if default in kernels else kernels[0]


def _trained(profile: Profile) -> list[int]:
    """Bytes of every parameter that is trained."""
    every = [each for block in profile.blocks for each in block.parameters]
    return [each.rows * each.row_bytes for each in every if not each.frozen]
