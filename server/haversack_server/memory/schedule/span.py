"""One pass over a stretch of blocks, forward or backward, as a schedule is asked to lay it out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Blocks from ``start`` to before ``stop``.

    Gradients of blocks from ``gradients_from`` on are there when the pass begins, and are added
    to. ``reduces`` is false where this microbatch leaves its gradients unreduced (no_sync), and
    ``unreduced`` says that those that are there were left so.
    """

    start: int
    stop: int
    gradients_from: int
    reduces: bool = True
    unreduced: bool = False
