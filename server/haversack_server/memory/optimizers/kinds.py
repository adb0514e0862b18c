"""The kinds of optimizers: how many numbers each keeps for one of a tensor's, in what form.

State of ``torch.optim`` was checked to the byte against the real thing (torch 2.13.0,
``tests/unit/memory/test_optimizers.py``), and so was transformers' Adafactor (5.24). bitsandbytes
was read, not run: its rows are formulas. Counters of steps are one number for a tensor, on the
host unless a fused kernel wants them; Estimate does not count them. Knows nothing of sharding.
"""

from dataclasses import dataclass
from enum import StrEnum

from haversack.run import Optimizer, OptimizerKernel


class Form(StrEnum):
    """In what form the moments of a tensor are kept."""

    WHOLE = "whole"  # one number for each of the tensor's
    FACTORED = "factored"  # one for each row and one for each column
    BLOCKS = "blocks"  # one byte each, and an fp32 scale for every block
    MATRICES = "matrices"  # one moment for matrices of layers, all of them for the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One optimizer: ``moments`` for each number, of ``width`` bytes or of the updated type's.

    ``kernels`` are those that it has, its default first. ``paged``: in managed memory, that moves
    between device and host. ``from_start``: made with the optimizer, not in its first step.
    ``counter_bytes``: of the steps of one tensor, where torch.optim keeps a tensor of that.
    """

    moments: int
    source: str
    form: Form = Form.WHOLE
    width: int | None = None
    paged: bool = False
    from_start: bool = False
    counter_bytes: int = 0
    kernels: tuple[OptimizerKernel, ...] = (OptimizerKernel.FUSED,)

    @property
    def needs_shapes(self) -> bool:
        """Whether a number of elements does not decide what is kept."""
        return self.form in (Form.FACTORED, Form.MATRICES)


_FUSED, _FOREACH = OptimizerKernel.FUSED, OptimizerKernel.FOREACH
_LOOP = OptimizerKernel.FOR_LOOP
_ALL = (_FUSED, _FOREACH, _LOOP)
_TORCH = "torch.optim (torch 2.13.0), optimizer.state"
_BITS = "bitsandbytes, optim/optimizer.py: init_state of Optimizer{}State, get_state_buffer"
_COUNTER_BYTES = 4  # fp32
_ONE, _TWO = _BITS.format(1), _BITS.format(2)

KINDS = {
    Optimizer.ADAMW: Kind(moments=2, source=_TORCH, kernels=_ALL, counter_bytes=_COUNTER_BYTES),
    Optimizer.ADAMW_FOREACH: Kind(
        moments=2, source=_TORCH, kernels=(_FOREACH,), counter_bytes=_COUNTER_BYTES
    ),
    Optimizer.SGD: Kind(moments=0, source=_TORCH, kernels=_ALL),
    Optimizer.SGD_MOMENTUM: Kind(moments=1, source=_TORCH, kernels=_ALL),
    # Adafactor takes its for-loop where foreach is not asked for.
    Optimizer.ADAFACTOR: Kind(
        moments=1, form=Form.FACTORED, source=_TORCH, kernels=(_LOOP, _FOREACH)
    ),
    Optimizer.ADAFACTOR_FP32: Kind(
        moments=1,
        form=Form.FACTORED,
        width=4,
        kernels=(_LOOP,),
        source="transformers 5.24, optimization.Adafactor, without a first moment",
    ),
    Optimizer.ADAMW_8BIT: Kind(moments=2, form=Form.BLOCKS, width=4, source=_TWO),
    Optimizer.PAGED_ADAMW: Kind(moments=2, width=4, paged=True, source=_TWO),
    Optimizer.PAGED_ADAMW_8BIT: Kind(moments=2, form=Form.BLOCKS, width=4, paged=True, source=_TWO),
    Optimizer.LION: Kind(moments=1, width=4, source=_ONE),
    Optimizer.LION_8BIT: Kind(moments=1, form=Form.BLOCKS, width=4, source=_ONE),
    Optimizer.PAGED_LION: Kind(moments=1, width=4, paged=True, source=_ONE),
    Optimizer.PAGED_LION_8BIT: Kind(moments=1, form=Form.BLOCKS, width=4, paged=True, source=_ONE),
    # The kernel is that of the AdamW beside it.
    Optimizer.MUON: Kind(
        moments=2,
        form=Form.MATRICES,
        kernels=_ALL,
        source=f"{_TORCH}: Muon for matrices of layers, AdamW for the rest",
    ),
    Optimizer.RMSPROP: Kind(
        moments=1, source=_TORCH, kernels=(_FOREACH, _LOOP), counter_bytes=_COUNTER_BYTES
    ),
    Optimizer.ADAGRAD: Kind(
        moments=1,
        source=_TORCH,
        kernels=(_FOREACH, _LOOP),
        from_start=True,
        counter_bytes=_COUNTER_BYTES,
    ),
}


def kernel_of(optimizer: Optimizer, given: OptimizerKernel) -> OptimizerKernel:
    """Take the kernel that is named where the optimizer has it, else its default."""
    kernels = KINDS[optimizer].kernels
    return given if given in kernels else kernels[0]
