"""Blocks under ``torch.compile``, and what a plan can do with them.

A block that is compiled in place (``block.compile()``) keeps its name and its forward, so a plan
reaches into what is compiled, whichever comes first. One that is wrapped (``torch.compile(block)``)
runs its operations where no policy counts them, and its parameters have other names.
"""

from collections.abc import Iterable

from torch import nn

from haversack.errors import InvalidRequestError


def refuse_wrapped(model: nn.Module, names: Iterable[str]) -> None:
    """Raise ``InvalidRequestError`` if a block, or what is in it, is wrapped by a compiler."""
    modules = dict(model.named_modules())
    for name in names:
        block = modules.get(name)
        for path, module in block.named_modules(prefix=name) if block is not None else ():
            if hasattr(module, "_orig_mod"):
                raise InvalidRequestError(
                    f"{path} is wrapped by torch.compile, and a plan cannot count what runs in it; "
                    f"compile it in place: model.get_submodule({path!r}).compile()",
                    field="model",
                )
