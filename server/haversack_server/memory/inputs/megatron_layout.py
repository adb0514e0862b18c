"""Megatron-LM's pipeline layout: which layers stand on which stage, in letters or as lists.

``Ettt|(tt|)*3tL``: E the embedding, t a layer, m a layer for multi-token prediction, L the loss; |
ends a stage, and ``x*3`` or ``(...)*3`` repeats. Stages are in the model's order. Nothing is run.
"""

import re
from collections import Counter

MOST_LETTERS = 20_000
_REPEATED = re.compile(r"(?:\(([Etm L|,]*)\)|([EtmL|]))\*(\d{1,4})")
_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def stages_of(written: object) -> list[str] | None:
    """Spell every stage out in letters; None where it cannot be read."""
    if isinstance(written, list):
        return _of_lists(written)
    # A shell's escapes stay in files that are made for one.
    text = str(written)[: MOST_LETTERS + 1].strip("'\"").replace("\\", "")
    while found := _REPEATED.search(text):
        body, times = found[1] or found[2], int(found[3])
        if len(text) + len(body) * times > MOST_LETTERS:
            return None
        text = text[: found.start()] + body * times + text[found.end() :]
    letters = re.sub(r"[\s,]", "", text)
    if len(text) > MOST_LETTERS or re.search(r"[^EtmL|]", letters):
        return None
    return letters.rstrip("|").split("|")


def layers_of(stages: list[str]) -> tuple[int, ...] | None:
    """Count the layers of each stage; None where embedding and loss are not the two ends.

    Layers that predict further tokens stand with the loss, so they are in no count.
    """
    total = Counter("".join(stages))
    ends = stages[0].startswith("E") and stages[-1].endswith("L")
    apart = total["m"] != stages[-1].count("m")
    if not ends or apart or total["E"] != 1 or total["L"] != 1:
        return None
    return tuple(stage.count("t") for stage in stages)


def _of_lists(written: list[object]) -> list[str] | None:
    stages = []
    for stage in written:
        names = stage if isinstance(stage, list) else [stage]
        letters = [_LETTERS.get(str(name)) for name in names]
        if None in letters:
            return None
        stages.append("".join(letter for letter in letters if letter))
    return stages
