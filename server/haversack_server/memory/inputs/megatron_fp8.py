"""Megatron-LM's arguments of products in 8 bits: format, recipe, weights that are stored so.

Knows what is said, and nothing of what a recipe keeps.
"""

from haversack.training import Fp8Recipe
from haversack_server.memory.inputs.reader import Reader

_FORMATS = {"e4m3": True, "hybrid": True}
_RECIPES = {
    "delayed": Fp8Recipe.DELAYED,
    "tensorwise": Fp8Recipe.TENSORWISE,
    "blockwise": Fp8Recipe.BLOCKWISE,
    "mxfp8": Fp8Recipe.MXFP8,
}
_OTHERS = {
    "fp8-dot-product-attention": "attention in 8 bits",
    "fp8-multi-head-attention": "attention in 8 bits",
    "fp8-output-proj": "logits in 8 bits",
    "activation-func-fp8-input-store": "inputs of activations in 8 bits",
    "first-last-layers-bf16": "some layers in 8 bits only",
    "reuse-grad-buf-for-mxfp8-param-ag": "weights gathered into the buffer of gradients",
}
# What a weight is gathered into before it has a scale for each block is not known.
_ONE_SCALE = (Fp8Recipe.DELAYED, Fp8Recipe.TENSORWISE)


def read_fp8(reader: Reader) -> None:
    """Find the recipe, delayed by default as in Megatron; without a format the rest is not read."""
    narrow = reader.word(_FORMATS, "fp8-format")
    reader.unmodelled_if_on(_OTHERS)
    if not narrow:
        return
    recipe = reader.word(_RECIPES, "fp8-recipe") or Fp8Recipe.DELAYED
    stored = bool(reader.flag("fp8-param-gather", "fp8-param"))
    if not reader.has("fp8-recipe"):
        reader.assume("fp8-recipe is missing: delayed, Megatron's default")
    reader.set("training.fp8", recipe, "fp8-recipe" if reader.has("fp8-recipe") else "fp8-format")
    if stored and recipe not in _ONE_SCALE:
        reader.unmodelled("fp8-param-gather", "weights in 8 bits with a scale for each block")
    elif stored:
        reader.set("training.fp8_parameters", True, "fp8-param-gather")
