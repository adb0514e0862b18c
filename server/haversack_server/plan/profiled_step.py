"""What the step of a profile's plan consists of: whoever measures it must run the same one.

A sum of bytes says nothing of the optimizer in it. Knows the request and the profile, and no plan.
"""

from haversack.plan import CountedStep
from haversack.profile import Profile
from haversack.training import Optimizer, Training
from haversack_server.plan.profiled_optimizer import has_its_own, moments_bytes


def counted_step(training: Training, profile: Profile) -> CountedStep:
    """Say what is counted of a step, on one rank and before anything is divided."""
    own = has_its_own(training, profile)
    state_bytes, _ = moments_bytes(training, profile)
    return CountedStep(
        optimizer=profile.optimizer if own else training.optimizer or Optimizer.ADAMW,
        optimizer_class=profile.optimizer_class if own else "",
        optimizer_state_bytes=state_bytes,
        parameter_bytes=sum(block.parameter_bytes for block in profile.blocks),
        gradient_bytes=sum(block.gradient_bytes for block in profile.blocks),
        standing_bytes=profile.standing_bytes,
        loss=profile.loss,
        microbatches=training.accumulation or 1,
        device=profile.device,
        timed_on=profile.timed_on,
    )
