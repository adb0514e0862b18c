"""Caches of keys and values in a region: a replay finds what its forward left in them."""

from typing import Any

import torch

from haversack_server.worker.zoo.case import BATCH, WIDTH, region

Tensor = torch.Tensor


def _attend(query: Tensor, keys: Tensor) -> Tensor:
    return (query @ keys.T).softmax(-1) @ keys


@region(parts=lambda: {"keys": None})
def cache_growing(model: Any, x: Tensor) -> Any:
    """A cache that grows: the replay attends to twice as many keys."""
    new = model.linear(x)
    model.keys = new if model.keys is None else torch.cat([model.keys, new])
    return _attend(new, model.keys)


@region(parts=lambda: {"keys": torch.ones(4 * BATCH, WIDTH), "cursor": 0})
def cache_static_cursor(model: Any, x: Tensor) -> Any:
    """A static cache whose cursor moves on with every call."""
    new = model.linear(x)
    model.keys[model.cursor : model.cursor + BATCH] = new.detach() * (1 + model.cursor)
    model.cursor += BATCH
    return _attend(new, model.keys.clone())


@region(parts=lambda: {"keys": torch.ones(BATCH, WIDTH)})
def cache_overwritten(model: Any, x: Tensor) -> Any:
    """A cache of one shape that every call overwrites after it has read it."""
    new = model.linear(x)
    mixed = _attend(new, model.keys)
    model.keys = new.detach() * 2
    return mixed.sin()


@region(parts=lambda: {"keys": torch.ones(2 * BATCH, WIDTH)})
def cache_sliding(model: Any, x: Tensor) -> Any:
    """A window of detached keys that slides on with every call."""
    new = model.linear(x)
    model.keys = torch.cat([model.keys, new.detach()])[-2 * BATCH :]
    return _attend(new, model.keys).sin()


@region()
def cache_off(model: Any, x: Tensor) -> Any:
    """The same attention without a cache."""
    new = model.linear(x)
    return _attend(new, new).sin()
