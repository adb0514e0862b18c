"""Settings that a subject does not use: they are named in the answer, never dropped in silence."""

from collections.abc import Set
from dataclasses import fields

from haversack.run import TrainingRun

RECIPE = frozenset({"precision", "optimizer"})
TIMELINE = RECIPE | {"accumulation"}


def unused(run: TrainingRun, *, training: Set[str], ranks: bool = True) -> tuple[str, ...]:
    """Name the settings that were given and are not used.

    ``training`` are the training settings that the subject uses; ``ranks`` says whether it uses
    parallelism and device.
    """
    paths = _given("training", run.training, training)
    if not ranks:
        paths += _given("parallelism", run.parallelism, frozenset())
        paths += _given("device", run.device, frozenset())
    if run.kernel_profile:
        paths.append("kernel_profile")
    return tuple(f"{path}: not used for this subject" for path in paths)


def _given(path: str, noun: object, used: Set[str]) -> list[str]:
    names = [field.name for field in fields(noun)]  # type: ignore[arg-type]
    return [f"{path}.{name}" for name in names if getattr(noun, name) and name not in used]
