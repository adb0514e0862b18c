"""What goes into a region and comes out of it: arguments that change, and forms that do not matter.

PyTorch watches positional tensors only; those in keywords, containers, closures and attributes may
change unseen.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload
from haversack_server.worker.zoo.case import WIDTH, Regions, case, points, region, workload

Tensor = torch.Tensor


class _Given(Regions):
    """Gives the region one more argument, in the form that ``form`` makes of ``scale``."""

    def __init__(self, region: Any, form: Any, **settings: Any) -> None:
        super().__init__(region, **settings)
        self.form = form
        self.scale = torch.ones(WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        args, kwargs = self.form(self.scale)
        return checkpoint(self.region, self, x, *args, **kwargs, use_reentrant=False)


def _given(form: Any, region: Any, after: Any = None) -> Workload:
    model = _Given(region, form)
    callback = (lambda: after(model)) if after else None
    return workload(model, between_forward_and_backward=callback)


def _doubled(model: Any) -> None:
    model.scale.mul_(2)


def _added(model: Any, x: Tensor, scale: Tensor) -> Any:
    return model.linear(x + scale).sin()


@case
def inputs_keyword_changed() -> Workload:
    """A tensor given by keyword that is edited between forward and backward."""
    return _given(lambda scale: ((), {"scale": scale}), _added, _doubled)


@case
def inputs_list_changed() -> Workload:
    """A tensor in a list that is edited between forward and backward."""
    return _given(lambda s: (([s],), {}), lambda m, x, held: _added(m, x, held[0]), _doubled)


@case
def inputs_dictionary_changed() -> Workload:
    """A tensor in a dictionary that is edited between forward and backward."""
    return _given(lambda s: (({"s": s},), {}), lambda m, x, held: _added(m, x, held["s"]), _doubled)


@case
def inputs_closure_changed() -> Workload:
    """A tensor in a closure that is edited between forward and backward."""
    scale = torch.ones(WIDTH)
    model = Regions(lambda model, x: _added(model, x, scale))
    return workload(model, between_forward_and_backward=lambda: scale.mul_(2))


@region(parts=lambda: {"scale": torch.ones(WIDTH)}, after=_doubled)
def inputs_attribute_changed(model: Any, x: Tensor) -> Any:
    """A tensor on the module that is edited between forward and backward."""
    return _added(model, x, model.scale)


@case
def inputs_positional_changed() -> Workload:
    """A positional tensor that is edited after the forward, and that a plain backward needs not."""
    return _given(lambda scale: ((scale,), {}), _added, _doubled)


@case
def inputs_positional_changed_and_saved() -> Workload:
    """A positional tensor that is edited after the forward, and that a plain backward needs too."""
    times = lambda m, x, scale: (m.linear(x) * scale).sin()  # noqa: E731
    return _given(lambda scale: ((scale,), {}), times, _doubled)


@case
def inputs_keyword_edited_inside() -> Workload:
    """A tensor given by keyword that the region edits itself: twice, with its replay."""

    def region(model: Any, x: Tensor, scale: Tensor) -> Any:
        scale.mul_(2)
        return (model.linear(x) * scale.clone()).sin()

    return _given(lambda scale: ((), {"scale": scale}), region)


@case
def inputs_positional_edited_inside() -> Workload:
    """A positional tensor that the region edits itself."""

    def region(model: Any, x: Tensor, scale: Tensor) -> Any:
        scale.mul_(2)
        return (model.linear(x) * scale.clone()).sin()

    return _given(lambda scale: ((scale,), {}), region)


class _Computed(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(self.linear(x))


@region(around=_Computed)
def inputs_relu_in_place(model: Any, x: Tensor) -> Any:
    """An in-place ReLU on the input of a region."""
    return model.linear(torch.relu_(x)).sin()


@region()
def inputs_in_place_on_intermediates(model: Any, x: Tensor) -> Any:
    """In-place operations on what the region made itself."""
    return model.linear(torch.relu_(model.linear(x)).sin().add_(1)).sin()


def _swapped(model: Any) -> None:
    model.linear.weight.data = model.linear.weight.data * 2


@region(after=_swapped)
def inputs_parameter_data_swapped(model: Any, x: Tensor) -> Any:
    """A parameter whose data are exchanged between forward and backward."""
    return model.linear(model.linear(x).sin()).sin()


def _stepped(model: Any) -> None:
    with torch.no_grad():
        model.linear.weight.mul_(2)


@region(after=_stepped)
def inputs_parameter_stepped(model: Any, x: Tensor) -> Any:
    """A parameter that is updated in place before the backward: only plain runs see it."""
    return model.linear(model.linear(x).sin()).sin()


def _sharded(model: Any) -> None:
    model.gathered[0] = model.gathered[0][:2]


@region(parts=lambda: {"gathered": [torch.ones(WIDTH, requires_grad=True)]}, after=_sharded)
def inputs_weight_sharded(model: Any, x: Tensor) -> Any:
    """A gathered weight that is a shard again when the replay needs it whole."""
    return functional.layer_norm(model.linear(x), (WIDTH,), model.gathered[0]).sin()


def _resized(model: Any) -> None:
    model.norm.weight.data = model.norm.weight.data[:2]


@region(parts=lambda: {"norm": nn.LayerNorm(WIDTH)}, after=_resized)
def inputs_parameter_resized(model: Any, x: Tensor) -> Any:
    """A parameter whose data are made a shard in place: a plain backward misses it too."""
    return model.norm(model.linear(x)).sin()


class _Edited(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x).mul_(2)


@region(around=_Edited)
def inputs_output_edited(model: Any, x: Tensor) -> Any:
    """An output edited in place: a plain backward needs it as it was."""
    return model.linear(x).exp()


@region()
def inputs_nested_outputs(model: Any, x: Tensor) -> Any:
    """Outputs in lists and dictionaries."""
    h = model.linear(x)
    return [h.sin(), {"cos": h.cos(), "both": (h.tanh(), h.exp())}]


@region()
def inputs_outputs_without_gradient(model: Any, x: Tensor) -> Any:
    """Outputs that are None, a number, and a tensor without a gradient."""
    h = model.linear(x)
    return h.sin(), None, 3, h.detach()


@case
def inputs_keyword() -> Workload:
    """A tensor given by keyword that nobody edits."""
    return _given(lambda scale: ((), {"scale": scale}), _added)


@case
def inputs_keyword_with_gradient() -> Workload:
    """A tensor given by keyword that asks for a gradient."""
    built = _given(lambda scale: ((), {"scale": scale}), _added)
    model: Any = built.model
    model.scale.requires_grad_()
    return built


@case
def inputs_tuple() -> Workload:
    """A tensor in a tuple, a number and None as arguments."""
    return _given(lambda s: (((s, 2), None), {}), lambda m, x, held, _: _added(m, x, held[0]))


@case
def inputs_without_gradient() -> Workload:
    """An input that asks for no gradient; the parameters do."""
    model = Regions(lambda model, x: model.linear(x).sin())
    return Workload(model, (points().detach(),))


@region(parts=lambda: {"frozen": nn.Linear(WIDTH, WIDTH).requires_grad_(False)})
def inputs_frozen_parameters(model: Any, x: Tensor) -> Any:
    """A layer that asks for no gradient."""
    return model.frozen(model.linear(x).sin()).sin()


@region(parts=lambda: {"unused": nn.Parameter(torch.zeros(2))})
def inputs_unused_parameter(model: Any, x: Tensor) -> Any:
    """A parameter that nothing uses: its gradient is None, with and without."""
    return model.linear(x).sin()


@case
def inputs_weight_in_a_closure() -> Workload:
    """A weight that no module has."""
    weight = torch.randn(WIDTH, requires_grad=True)
    return workload(Regions(lambda model, x: (model.linear(x) * weight).sin()))


@region()
def inputs_same_twice(model: Any, x: Tensor) -> Any:
    """An input that is used twice."""
    return (model.linear(x) * x).sin() + x
