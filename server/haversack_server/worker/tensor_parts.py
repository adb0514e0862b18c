"""What a tensor consists of: arrays with memory of their own, which alone can be read.

Sparse tensors, and those of classes that are made of other tensors. Calls nothing of the class of
a tensor but what says which tensors it is made of. Knows nothing of digests.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

VAST_BYTES = 2**28  # as an array, beside which a job has no room for another few of that size
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def parts(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Name the arrays of a tensor, none of which is larger than what it holds.

    There are none of one that holds no numbers that could be read.
    """
    if is_wrapper(tensor):
        for name, inner in _inner(tensor):
            yield from ((f"{name}.{part}".rstrip("."), each) for part, each in parts(inner))
        return
    tensor = without_class(tensor)
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        yield from (("indices", tensor.indices()), ("values", tensor.values()))
    elif tensor.layout in _COMPRESSED:
        yield from ((name, getattr(tensor, name)()) for name in _COMPRESSED[tensor.layout])
    else:
        yield "", dense_part(tensor)


def dense_part(tensor: torch.Tensor) -> torch.Tensor:
    """Give the numbers of a tensor whose layout is not that of an array as one that is."""
    if tensor.is_quantized:
        return tensor.int_repr()
    if tensor.is_nested:
        return torch.cat([part.flatten() for part in tensor.unbind()])
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a class that has no memory for it, but other tensors."""
    if tensor.is_nested or not torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
        return False
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return tensor.untyped_storage().data_ptr() == 0 and tensor.numel() > 0
        except RuntimeError:  # as torch says that there is none
            return True


def without_class(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor that has memory of its own as one of torch's own class, cut from its graph."""
    if type(tensor) in _PLAIN or tensor.is_nested:
        return tensor.detach()
    with torch._C.DisableTorchFunctionSubclass(), torch._C._DisableTorchDispatch():
        return tensor.detach().as_subclass(torch.Tensor)


def _inner(tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    with torch._C.DisableTorchFunctionSubclass():
        untyped: Any = tensor
        tells = is_traceable_wrapper_subclass(tensor)
        names = untyped.__tensor_flatten__()[0] if tells else vars(tensor)
        held = [(name, getattr(tensor, name, None)) for name in names]
    return [(name, each) for name, each in held if isinstance(each, torch.Tensor)]


def is_vast(tensor: torch.Tensor) -> bool:
    """Whether a tensor would be too large as an array."""
    return not tensor.is_nested and tensor.numel() * tensor.element_size() > VAST_BYTES


def row(tensor: torch.Tensor) -> torch.Tensor:
    """Give an array as a row of its numbers."""
    # One number that was expanded has a stride of 0, which ``flatten`` leaves.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,))


def unrepeated(tensor: torch.Tensor) -> torch.Tensor:
    """Give what an expanded tensor repeats, once: the same memory, without those dimensions."""
    for dimension in reversed(repeated(tensor)):
        tensor = tensor.select(dimension, 0)
    return tensor


def repeated(tensor: torch.Tensor) -> list[int]:
    """Name the dimensions along which a tensor repeats itself, since it was expanded."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return []
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return [place for place, (size, stride) in enumerate(sizes) if size > 1 and stride == 0]
