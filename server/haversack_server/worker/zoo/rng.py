"""Random numbers in a region: what a replay draws again, and what it draws anew."""

import random
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional

from haversack.torch import replay_context
from haversack_server.worker.zoo.case import WIDTH, Regions, region

RATE = 0.5
Tensor = torch.Tensor


@region()
def rng_dropout(model: Any, x: Tensor) -> Any:
    """Dropout, whose mask a replay draws again."""
    return functional.dropout(model.linear(x).sin(), RATE).sin()


@region(preserve_rng_state=False)
def rng_dropout_not_preserved(model: Any, x: Tensor) -> Any:
    """Dropout without preserve_rng_state: the replay draws another mask."""
    return functional.dropout(model.linear(x).sin(), RATE).sin()


@region()
def rng_bernoulli(model: Any, x: Tensor) -> Any:
    """A mask of torch.bernoulli, which a replay draws again."""
    h = model.linear(x).sin()
    return (h * torch.bernoulli(torch.full_like(h, RATE))).sin()


@region(preserve_rng_state=False)
def rng_bernoulli_not_preserved(model: Any, x: Tensor) -> Any:
    """A mask of torch.bernoulli without preserve_rng_state."""
    h = model.linear(x).sin()
    return (h * torch.bernoulli(torch.full_like(h, RATE))).sin()


@region()
def rng_noise(model: Any, x: Tensor) -> Any:
    """Noise of torch.randn_like, which a replay draws again."""
    return (model.linear(x) + torch.randn_like(x)).sin()


@region(preserve_rng_state=False)
def rng_noise_not_preserved(model: Any, x: Tensor) -> Any:
    """Noise of torch.randn_like without preserve_rng_state."""
    return (model.linear(x) + torch.randn_like(x)).sin()


@region()
def rng_alpha_dropout(model: Any, x: Tensor) -> Any:
    """Alpha dropout, whose mask a replay draws again."""
    return functional.alpha_dropout(model.linear(x).sin(), RATE, training=True).sin()


@region(preserve_rng_state=False)
def rng_alpha_dropout_not_preserved(model: Any, x: Tensor) -> Any:
    """Alpha dropout without preserve_rng_state."""
    return functional.alpha_dropout(model.linear(x).sin(), RATE, training=True).sin()


@region()
def rng_gumbel(model: Any, x: Tensor) -> Any:
    """A Gumbel softmax, whose noise a replay draws again."""
    return functional.gumbel_softmax(model.linear(x)).sin()


@region(preserve_rng_state=False)
def rng_gumbel_not_preserved(model: Any, x: Tensor) -> Any:
    """A Gumbel softmax without preserve_rng_state."""
    return functional.gumbel_softmax(model.linear(x)).sin()


@region()
def rng_permutation(model: Any, x: Tensor) -> Any:
    """Columns in a random order of torch.randperm, which a replay draws again."""
    return model.linear(x)[:, torch.randperm(WIDTH)].sin() * x


@region()
def rng_multinomial(model: Any, x: Tensor) -> Any:
    """Columns that torch.multinomial picks, which a replay picks again."""
    picked = torch.multinomial(torch.ones(WIDTH), WIDTH, replacement=True)
    return model.linear(x)[:, picked].sin() * x


@region()
def rng_channel_dropout(model: Any, x: Tensor) -> Any:
    """Dropout of whole channels, whose mask a replay draws again."""
    return functional.dropout1d(model.linear(x).sin(), RATE).sin()


@region()
def rng_rrelu(model: Any, x: Tensor) -> Any:
    """RReLU with another saving operation behind it."""
    return functional.rrelu(model.linear(x), training=True).sin()


@region()
def rng_rrelu_last(model: Any, x: Tensor) -> Any:
    """RReLU as the last saver: early stop takes its noise before it is drawn."""
    return functional.rrelu(model.linear(x), training=True)


@region(early_stop=False)
def rng_rrelu_last_without_early_stop(model: Any, x: Tensor) -> Any:
    """RReLU as the last saver, replayed to its end."""
    return functional.rrelu(model.linear(x), training=True)


@region()
def rng_attention_dropout(model: Any, x: Tensor) -> Any:
    """Scaled dot product attention with dropout."""
    query = model.linear(x)[None, None]
    mixed = functional.scaled_dot_product_attention(query, query.sin(), query.cos(), dropout_p=RATE)
    return mixed.sin()


@region(parts=lambda: {"lstm": nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=RATE)})
def rng_lstm_dropout(model: Any, x: Tensor) -> Any:
    """A stacked LSTM with dropout between its layers."""
    return model.lstm(model.linear(x))[0].sin()


@region(parts=lambda: {"pool": nn.FractionalMaxPool2d(2, output_size=2)})
def rng_fractional_pool(model: Any, x: Tensor) -> Any:
    """Fractional max pooling, whose windows are random."""
    return model.pool(model.linear(x)[None, :, None] * model.linear(x)[None, :, :, None]).sin()


@region()
def rng_seed_inside(model: Any, x: Tensor) -> Any:
    """A region that seeds torch itself."""
    torch.manual_seed(5)
    return functional.dropout(model.linear(x).sin(), RATE).sin()


@region(after=lambda _: torch.rand(4))
def rng_drawn_between(model: Any, x: Tensor) -> Any:
    """Dropout, and numbers that are drawn between forward and backward."""
    return functional.dropout(model.linear(x).sin(), RATE).sin()


@region()
def rng_python_factor(model: Any, x: Tensor) -> Any:
    """A factor from Python's random, which no replay restores."""
    return (model.linear(x) * random.random()).sin()


@region()
def rng_python_order(model: Any, x: Tensor) -> Any:
    """Functions in an order from Python's random: other operations, equal shapes."""
    functions = [torch.sin, torch.cos, torch.tanh, torch.exp]
    random.shuffle(functions)
    h = model.linear(x)
    for function in functions:
        h = function(h)
    return h


@region()
def rng_python_layer_drop(model: Any, x: Tensor) -> Any:
    """A layer left out by Python's random: the replay saves another number of tensors."""
    h = model.linear(x).sin()
    # Seed 0 draws 0.84, then 0.76.
    return model.linear(h).sin() if random.random() > 0.8 else h


@region()
def rng_numpy_mask(model: Any, x: Tensor) -> Any:
    """A mask from numpy's generator, which no replay restores."""
    return model.linear(x).sin() * torch.from_numpy(numpy.random.rand(WIDTH)).to(x)


@region(parts=lambda: {"generator": numpy.random.default_rng(0)})
def rng_numpy_held_generator(model: Any, x: Tensor) -> Any:
    """Noise from a generator of numpy that the model holds."""
    return model.linear(x).sin() * torch.from_numpy(model.generator.random(WIDTH)).to(x)


@region(parts=lambda: {"generator": random.Random(0)})
def rng_python_held_generator(model: Any, x: Tensor) -> Any:
    """A factor from a generator of Python that the model holds."""
    return (model.linear(x) * model.generator.random()).sin()


@region(parts=lambda: {"generator": torch.Generator()})
def rng_torch_held_generator(model: Any, x: Tensor) -> Any:
    """Noise from a torch.Generator that the model holds: only default ones are restored."""
    return model.linear(x).sin() * torch.rand(WIDTH, generator=model.generator).to(x)


class _Outside(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        self.factor = random.random()
        return super().forward(x)


@region(around=_Outside)
def rng_python_drawn_outside(model: Any, x: Tensor) -> Any:
    """A factor from Python's random that is drawn outside the region: the cure."""
    return (model.linear(x) * model.factor).sin()


@region(context_fn=replay_context(numpy=False))
def rng_python_factor_restored(model: Any, x: Tensor) -> Any:
    """A factor from Python's random under replay_context: another cure."""
    return (model.linear(x) * random.random()).sin()


@region(context_fn=replay_context(python=False))
def rng_numpy_mask_restored(model: Any, x: Tensor) -> Any:
    """A mask from numpy's generator under replay_context."""
    return model.linear(x).sin() * torch.from_numpy(numpy.random.rand(WIDTH)).to(x)


GENERATOR = torch.Generator()


@region(context_fn=replay_context(generators=[GENERATOR]))
def rng_generator_restored(model: Any, x: Tensor) -> Any:
    """Noise from a torch.Generator that replay_context names."""
    return model.linear(x).sin() * torch.rand(WIDTH, generator=GENERATOR).to(x)
