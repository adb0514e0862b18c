"""Whether a kernel is compiled for the types that its annotations declare, and for no others.

int, bool, float      int64, boolean, float64
NDArray[np.T]         contiguous and writable, of T
NDArray[Any], Any     one type in each signature, that of the cells: int32, then int64
a NamedTuple          its fields, by the same rules
"""

from itertools import repeat
from typing import Any, get_args, get_type_hints

import numpy as np
from numba import types

CELLS = types.int32, types.int64
SCALARS = {int: types.int64, bool: types.boolean, float: types.float64}


def signatures_fit(kernel: Any) -> bool:
    """Tell whether there is a signature for each type of cell, or one in all, as declared."""
    hints = get_type_hints(kernel.py_func)
    hints.pop("return")
    cells = CELLS if any(map(_has_cells, hints.values())) else CELLS[:1]
    compiled = kernel.signatures
    return len(compiled) == len(cells) and all(
        any(_all_fit(signature, hints.values(), cell) for signature in compiled) for cell in cells
    )


def _all_fit(compiled: Any, hints: Any, cell: Any) -> bool:
    return len(compiled) == len(hints) and all(map(_fits, compiled, hints, repeat(cell)))


def _has_cells(hint: Any) -> bool:
    if hasattr(hint, "_fields"):
        return any(map(_has_cells, get_type_hints(hint).values()))
    return hint is Any or _element(hint) is Any


def _element(hint: Any) -> Any:
    """Return the type of an array's elements, None for what is no array."""
    return get_args(get_args(hint)[1])[0] if get_args(hint) else None


def _fits(compiled: Any, hint: Any, cell: Any) -> bool:
    if hasattr(hint, "_fields"):
        fields = get_type_hints(hint).values()
        same = getattr(compiled, "instance_class", None) is hint
        return same and _all_fit(tuple(compiled), fields, cell)
    element = _element(hint)
    if element is None:
        return bool(compiled == SCALARS.get(hint, cell))
    wanted = cell if element is Any else _scalar(element)
    layout = compiled.layout, compiled.mutable
    return bool(compiled.dtype == wanted) and layout == ("C", True)


def _scalar(element: Any) -> Any:
    return types.boolean if element is np.bool_ else getattr(types, element.__name__)
