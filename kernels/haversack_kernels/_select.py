"""Finds a rank among values without sorting them; knows no algorithm that wants it."""

from haversack_kernels._jit import Float64, jit


@jit
def nth_smallest(values: Float64, rank: int) -> float:
    """Return the value of this rank, 0 the least, by quickselect; reorders ``values``."""
    low, high = 0, values.size - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return float(values[rank])
