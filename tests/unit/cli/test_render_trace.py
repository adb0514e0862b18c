"""A trace on the page of an estimate: what lies in each phase."""

from tests.unit.cli.samples import drawn

from haversack.cli.render.trace import draw_trace
from haversack.estimate import Estimate
from haversack.trace import Trace, TracedPhase

GIB = 2**30


def test_a_traced_forward_says_that_the_loss_is_in_it() -> None:
    names = ("step 1 forward", "step 1 backward")
    phases = tuple(TracedPhase(name=name, traced_bytes=GIB) for name in names)
    text = drawn(draw_trace, Estimate(trace=Trace(phases=phases)))
    assert "step 1 forward and loss  1.00 GiB" in text
    assert "backward and loss" not in text
