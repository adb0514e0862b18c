"""What was predicted of ranks before they ran, beside what they measured. No torch, no verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haversack.basis import Basis
from haversack.verify import VerifySharded


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """Peaks of all ranks above what stands before a step, in bytes; empty where there are none.

    ``method`` says how they were predicted, or why they were not.
    """

    plain_bytes: Sequence[int] = ()
    checkpointed_bytes: Sequence[int] = ()
    basis: Basis = Basis.UNSPECIFIED
    method: str = ""


def with_predicted(found: VerifySharded, predicted: Predicted) -> VerifySharded:
    """Put predicted peaks beside the measured ones."""
    ranks = found.ranks
    if predicted.plain_bytes:
        pairs = zip(predicted.plain_bytes, predicted.checkpointed_bytes, strict=True)
        ranks = tuple(
            replace(
                rank,
                predicted_plain_peak_bytes=plain,
                predicted_checkpointed_peak_bytes=checkpointed,
            )
            for rank, (plain, checkpointed) in zip(ranks, pairs, strict=True)
        )
    return replace(
        found,
        ranks=ranks,
        prediction_basis=predicted.basis,
        prediction_method=predicted.method,
    )
