"""How tokens are scored against experts, as tape operations; one way for each family.

What the scores keep is small beside the experts' rows, but for routers in fp32, which keep a copy
of every token. Measured (torch 2.13.0 CPU, transformers 5.24).
"""

from haversack_server.memory import parts
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Router


def route(tape: TapeBuilder, model: Architecture, source: str, rows: int, frame: list[str]) -> str:
    """Append the router of ``rows`` tokens; return the scores of the chosen experts.

    ``frame`` holds what the router's results are named by until the experts are done.
    """
    ways = {
        Router.SOFTMAX: _softmax,
        Router.CHOSEN: _softmax_of_chosen,
        Router.FLOAT_SOFTMAX: _float_softmax,
        Router.FLOAT_SIGMOID: _float_sigmoid,
        Router.DENSE: _sigmoid_of_chosen,
    }
    return ways[model.routing.router](tape, model, source, rows, frame)


def gather(
    tape: TapeBuilder, name: str, source: str, size_bytes: int, index: str, index_bytes: int = 0
) -> str:
    """Take rows by an index that is kept; backward puts them into zeros of the source's size.

    With ``index_bytes`` the index is made here, from ``index``.
    """
    result = tape.storage(name, size_bytes)
    made = tape.storage(f"index of {name}", index_bytes, 0) if index_bytes else index
    if index_bytes:
        tape.add(f"index of {name}", [index], [made], forward_scratch_bytes=index_bytes)
    zeros = tape.size(source)
    tape.add(name, [source, made], [result], [made], backward_scratch_bytes=zeros)
    return result


def _softmax(
    tape: TapeBuilder, model: Architecture, source: str, rows: int, frame: list[str]
) -> str:
    """Softmax in fp32, the highest, normalised over the chosen where the family does so."""
    logits = tape.linear("router", source, rows, model.hidden, model.experts)
    wide = parts.cast(tape, logits, rows * model.experts * parts.FLOAT_BYTES)
    chances = tape.apply("router softmax", [wide], tape.size(wide), saves_result=True)
    top, index = _highest(tape, model, chances, rows)
    scores = _normalised(tape, top, rows) if model.routing.normalised else top
    if model.routing.narrow_scores:
        scores = parts.cast(tape, scores, rows * model.experts_per_token * tape.itemsize)
    frame += [logits, index, scores]
    return scores


def _highest(tape: TapeBuilder, model: Architecture, source: str, rows: int) -> tuple[str, str]:
    """Take the highest scores; backward scatters into zeros of the size of all."""
    size = rows * model.experts_per_token
    width = tape.size(source) // (rows * model.experts)
    top = tape.storage("top scores", size * width)
    index = tape.storage("top experts", size * parts.INDEX_BYTES, 0)
    zeros = tape.size(source)
    tape.add("top", [source], [top, index], [index], backward_scratch_bytes=zeros)
    return top, index


def _normalised(tape: TapeBuilder, top: str, rows: int) -> str:
    """Divide by the sum; d(a / b) = -a / b^2 makes quotients and a product before its own sum."""
    total = tape.apply("sum of scores", [top], rows * parts.FLOAT_BYTES)
    kept = [top, total]
    scratch = 3 * tape.size(top)
    return tape.apply(
        "normalised scores", kept, tape.size(top), kept, backward_scratch_bytes=scratch
    )


def _softmax_of_chosen(
    tape: TapeBuilder, model: Architecture, source: str, rows: int, frame: list[str]
) -> str:
    logits = tape.linear("router", source, rows, model.hidden, model.experts)
    top, index = _highest(tape, model, logits, rows)
    scores = tape.apply("softmax of the chosen", [top], tape.size(top), saves_result=True)
    frame += [logits, top, index]
    return scores


def _float_logits(tape: TapeBuilder, model: Architecture, source: str, rows: int) -> str:
    """A product in fp32 of copies in fp32: of every token, and of the router's weight."""
    tokens = parts.cast(tape, source, rows * model.hidden * parts.FLOAT_BYTES)
    weight: tuple[str, ...] = ()
    if tape.itemsize < parts.FLOAT_BYTES:
        size = model.experts * model.hidden * parts.FLOAT_BYTES
        weight = (tape.storage("weight in fp32", size, 0),)
        tape.add("weight in fp32", [], weight)
    logits = tape.storage("router", rows * model.experts * parts.FLOAT_BYTES)
    kept = [tokens, *weight] if tape.trains else [*weight]
    tape.add(
        "router",
        [tokens],
        [logits],
        kept,
        flops=2 * rows * model.hidden * model.experts,
    )
    return logits


def _float_softmax(
    tape: TapeBuilder, model: Architecture, source: str, rows: int, frame: list[str]
) -> str:
    """Softmax, the highest of it or of the best groups, and a scale."""
    logits = _float_logits(tape, model, source, rows)
    scores = tape.apply("router softmax", [logits], tape.size(logits), saves_result=True)
    if model.routing.groups:
        mask = _groups(tape, model, rows)
        scores = tape.apply("best groups", [scores], tape.size(scores), [mask])
    top, index = _highest(tape, model, scores, rows)
    scaled = tape.apply("scaled scores", [top], tape.size(top))
    frame += [logits, scores, index, scaled]
    return scaled


def _groups(tape: TapeBuilder, model: Architecture, rows: int) -> str:
    """The experts of the best groups, as a mask; which groups they are is worked out without it."""
    mask = tape.storage("mask of groups", rows * model.experts, 0)
    tape.add("mask of groups", [], [mask])
    return mask


def _float_sigmoid(
    tape: TapeBuilder, model: Architecture, source: str, rows: int, frame: list[str]
) -> str:
    """Sigmoid, groups by their two best, the highest of those; the groups' choice is kept, too."""
    routing, index_bytes = model.routing, parts.INDEX_BYTES
    logits = _float_logits(tape, model, source, rows)
    scores = tape.apply("router sigmoid", [logits], tape.size(logits), saves_result=True)
    with tape.frame() as inner:
        for name, count in (
            ("two best", 2 * routing.groups),
            ("best groups", routing.chosen_groups),
        ):
            index = tape.storage(name, rows * count * index_bytes, 0)
            tape.add(name, [scores], [index], [index])
            inner.append(index)
        mask = _groups(tape, model, rows)
        tape.keep(mask)
    top, index = _highest(tape, model, scores, rows)
    if routing.normalised:
        top = _normalised(tape, top, rows)
    scaled = tape.apply("scaled scores", [top], tape.size(top))
    frame += [logits, scores, index, scaled]
    return scaled


def _sigmoid_of_chosen(
    tape: TapeBuilder, model: Architecture, source: str, rows: int, frame: list[str]
) -> str:
    """Llama 4's: a score for every expert, 0 where it was not chosen."""
    logits = tape.linear("router", source, rows, model.hidden, model.experts)
    top, index = _highest(tape, model, logits, rows)
    spread = tape.apply("scores in place", [top], tape.size(logits), [index])
    wide = parts.cast(tape, spread, rows * model.experts * parts.FLOAT_BYTES)
    bounded = tape.apply("sigmoid", [wide], tape.size(wide), saves_result=True)
    low = parts.cast(tape, bounded, tape.size(logits))
    frame += [logits, low]
    return low
