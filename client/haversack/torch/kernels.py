"""Kernels of which fake tensors do not know enough: what they keep, and which types they take.

A recurrent layer keeps a workspace for its backward, which has no bytes under fake tensors. On the
CPU the kernel is asked: it runs for real once for each layout of its arguments, on zeros. cuDNN's
cannot be asked without its device. A grouped product, as mixtures of experts have it, is refused
under fake tensors in other types than bf16, though the CPU computes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from haversack.errors import NotSupportedError
from haversack.torch.leaves import leaves_of

_ON_CPU: Any = torch.ops.aten.mkldnn_rnn_layer.default
_ON_CUDA: Any = torch.ops.aten._cudnn_rnn.default
_GROUPED: Any = torch.ops.aten._grouped_mm.default
_SIZES: dict[Any, int] = {}


def called(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call an operation; under fake tensors give the result that its kernel would.

    Raises NotSupportedError for a kernel whose workspace is known on its device alone.
    """
    if operation not in (_ON_CPU, _ON_CUDA, _GROUPED) or not isinstance(args[0], FakeTensor):
        return operation(*args, **kwargs)
    if operation is _ON_CUDA:
        raise NotSupportedError(
            "what cuDNN's recurrent layers keep for their backward is not known under fake "
            'tensors; profile with device="cuda"'
        )
    if operation is _GROUPED:
        return _grouped(args, kwargs)
    *made, workspace = operation(*args, **kwargs)
    return (*made, workspace.new_empty(_size_bytes(args)))


def _grouped(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    dtype = args[0].dtype
    if dtype is torch.bfloat16 or args[0].device.type != "cpu":
        return _GROUPED(*args, **kwargs)
    first, second, *rest = args
    made = _GROUPED(first.bfloat16(), second.bfloat16(), *rest, **kwargs)
    return torch.empty_strided(made.shape, made.stride(), dtype=dtype, device=made.device)


def _size_bytes(args: Sequence[Any]) -> int:
    # The kernel looks at this itself: without gradients it keeps nothing.
    key = torch.is_grad_enabled(), *(_key(leaf) for leaf in leaves_of(args))
    if key not in _SIZES:
        with _disable_current_modes():
            *_, workspace = _ON_CPU(*tree_map_only(torch.Tensor, _zeros, tuple(args)))
        _SIZES[key] = 0 if workspace is None else workspace.numel()
    return _SIZES[key]


def _zeros(fake: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype).zero_()


def _key(leaf: Any) -> Any:
    return (leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
