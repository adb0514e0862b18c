"""The options of a run in which most weights are frozen."""

from haversack.cli.option_types import Whole, option

FINETUNING = [
    option(
        "Training",
        "--lora-rank",
        field="training.finetuning.rank",
        about="Rank of low-rank adapters; every other weight is frozen. Default: all weights "
        "train.",
        type=Whole(),
    ),
    option(
        "Training",
        "--lora-targets",
        field="training.finetuning.targets",
        about="Products that have adapters: q_proj,v_proj,... or all-linear. Default: q_proj and "
        "v_proj.",
        metavar="NAME,NAME",
    ),
    option(
        "Training",
        "--trained-parts",
        field="training.finetuning.trained_parts",
        about="Parts that train as a whole, of embedding, norms and head; every other weight is "
        "frozen. Default: none.",
        metavar="NAME,NAME",
    ),
    option(
        "Training",
        "--quantize",
        field="training.finetuning.frozen_weights",
        about="How the frozen weights of layers are stored: compute, nf4, nf4-double or int8. "
        "Default: compute, the type that is computed in.",
        metavar="NAME",
    ),
    option(
        "Training",
        "--quantized-by",
        field="training.finetuning.quantized_by",
        about="What quantizes the frozen weights while the model is loaded, with nf4-double: "
        "torchtune-2024-04 (a weight at once) or torchtune-2024-08 (in chunks). Default: not "
        "said, so what that takes is not counted.",
        metavar="NAME",
    ),
]
