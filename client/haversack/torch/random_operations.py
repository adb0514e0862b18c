"""Which operations draw random numbers, as PyTorch's dispatcher names them.

Knows no generator: what draws outside of PyTorch is not seen here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def draws_random(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of an operation's overload draws random numbers."""
    if torch.Tag.nondeterministic_seeded not in getattr(operation, "tags", ()):
        return False
    # Attention bears the tag whether it drops anything or not.
    for place, argument in enumerate(operation._schema.arguments):
        if argument.name == "dropout_p":
            given = dict(enumerate(args)).get(place, argument.default_value)
            return bool(kwargs.get("dropout_p", given))
    return True
