"""Knapsack instances by family, as in Pisinger, "Where are the hard knapsack problems?" (2005).

``largest`` is his R, the range of sizes. Transformer-like lists are ours: twenty kinds of
activations a layer, the same in every layer, with sizes and times as far apart as in a real layer.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Int64: TypeAlias = NDArray[np.int64]
Family: TypeAlias = Callable[[np.random.Generator, int, int], tuple[Int64, Int64]]

KINDS = 20
"""Activations of a transformer-like layer."""


class Instance(NamedTuple):
    """Hold the columns of a knapsack and the capacity it is solved for."""

    family: str
    sizes: Int64
    gains: Int64
    capacity: int


def make(family: str, n: int, capacity: int, seed: int = 0) -> Instance:
    """Return ``n`` candidates of which about half fit, at most half where sizes turn out small."""
    random = np.random.default_rng([seed, n, *np.frombuffer(family.encode(), np.uint8)])
    sizes, gains = FAMILIES[family](random, n, max(4 * capacity // n, 12))
    return Instance(family, sizes, np.maximum(gains, 1), min(capacity, int(sizes.sum()) // 2))


def uncorrelated(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Draw sizes and gains apart."""
    return _sizes(random, n, largest), _sizes(random, n, largest)


def weakly_correlated(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let gains differ from sizes by a tenth of the range at most."""
    sizes, tenth = _sizes(random, n, largest), largest // 10
    return sizes, np.maximum(sizes + random.integers(-tenth, tenth + 1, n), 1)


def strongly_correlated(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let gains exceed sizes by a constant."""
    sizes = _sizes(random, n, largest)
    return sizes, sizes + largest // 10


def inverse_strongly(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let sizes exceed gains by a constant."""
    gains = _sizes(random, n, largest)
    return gains + largest // 10, gains


def almost_strongly(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let gains exceed sizes by a constant and a little noise."""
    sizes, noise = _sizes(random, n, largest), largest // 500
    return sizes, sizes + largest // 10 + random.integers(-noise, noise + 1, n)


def subset_sum(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let gains equal sizes."""
    sizes = _sizes(random, n, largest)
    return sizes, sizes.copy()


def spanner(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Take multiples up to 10 of two strongly correlated candidates."""
    sizes, gains = strongly_correlated(random, 2, largest)
    base_sizes, base_gains = -(-2 * sizes // 10), -(-2 * gains // 10)
    which, times = random.integers(0, 2, n), random.integers(1, 11, n)
    return base_sizes[which] * times, base_gains[which] * times


def multiple_strongly(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let gains exceed sizes by one of two constants."""
    sizes = _sizes(random, n, largest)
    return sizes, sizes + np.where(sizes % 6 == 0, 3 * largest // 10, 2 * largest // 10)


def profit_ceiling(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let gains be sizes rounded up to multiples of 3."""
    sizes = _sizes(random, n, largest)
    return sizes, -(-sizes // 3) * 3


def circle(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let gains lie on a piece of an ellipse over the sizes."""
    sizes = _sizes(random, n, largest)
    height = np.sqrt(4.0 * largest**2 - (sizes - 2.0 * largest) ** 2)
    return sizes, (2 / 3 * height).astype(np.int64)


def transformer(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Repeat the activations of a layer."""
    of_kind, times = _layer(random, largest)
    kind = np.arange(n) % KINDS
    return of_kind[kind], times[kind]


def transformer_jittered(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Repeat them with times that differ by 3 %."""
    sizes, gains = transformer(random, n, largest)
    return sizes, (gains * random.normal(1, 0.03, n).clip(0.5)).astype(np.int64)


def transformer_uneven(random: np.random.Generator, n: int, largest: int) -> tuple[Int64, Int64]:
    """Let sizes differ by up to a fifth, too."""
    sizes, gains = transformer_jittered(random, n, largest)
    return (sizes * random.uniform(0.8, 1.2, n)).astype(np.int64) + 1, gains


def _sizes(random: np.random.Generator, n: int, largest: int) -> Int64:
    return random.integers(1, largest + 1, n)


def _layer(random: np.random.Generator, largest: int) -> tuple[Int64, Int64]:
    """Return sizes from a thirtieth of ``largest`` up, and times about 100 us in nanoseconds."""
    sizes = (largest * random.choice([1 / 32, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1], KINDS)).astype(int)
    rates = random.lognormal(0, 1, KINDS)
    return np.maximum(sizes, 1), (rates * 1e5 * sizes / largest).astype(np.int64) + 1


FAMILIES: dict[str, Family] = {
    "uncorrelated": uncorrelated,
    "weakly correlated": weakly_correlated,
    "strongly correlated": strongly_correlated,
    "inverse strongly": inverse_strongly,
    "almost strongly": almost_strongly,
    "subset-sum": subset_sum,
    "spanner": spanner,
    "multiple strongly": multiple_strongly,
    "profit ceiling": profit_ceiling,
    "circle": circle,
    "transformer": transformer,
    "transformer, jittered": transformer_jittered,
    "transformer, uneven": transformer_uneven,
}
