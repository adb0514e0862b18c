"""Which results of a block to save, make again or leave out: the cheapest for each price of a byte.

A result that the backward needs is saved, for its bytes, or made again, for its time; what it is
made of is then saved or made again too, and all else is left out. For a given price of a byte in
time the cheapest choice is a minimum cut. Prices are those of chords between choices found before,
so all that is found is on the lower hull of bytes against time. The flow is networkx's, which
PyTorch brings along.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from haversack.torch.occurrences import Occurrence
from haversack.torch.results import Result

_PS = 1000  # per ns: flows are of whole numbers, so that cuts are exact
_KEPT, _LET_GO = "kept", "let go"


@dataclass(frozen=True, slots=True)
class Cut:
    """A choice for a block, with its bytes and its time as far as the graph knows them."""

    saved: frozenset[Occurrence]
    left_out: frozenset[Occurrence]
    size_bytes: int
    time_ps: int


def hull(results: Sequence[Result], most: int) -> list[Cut]:
    """Give choices on the lower hull of bytes against time: at most ``most`` beside its ends.

    Of more, those below the widest chords. The ends are not given where saving or recomputing the
    whole block is no worse: where nothing is made again, or all is.
    """
    block = _Block(results)
    if not block.is_needed:
        return []
    fewest, quickest = block.ends()
    inner = [*islice(_between(block, fewest, quickest), most)]
    spares = fewest.saved or fewest.time_ps < block.time_ps
    return [*([fewest] if spares else []), *inner, *([quickest] if quickest.time_ps else [])]


def _between(block: "_Block", fewest: Cut, quickest: Cut) -> Iterator[Cut]:
    chords = [(fewest, quickest)]
    while chords:
        left, right = chords.pop(max(range(len(chords)), key=lambda i: _width(*chords[i])))
        prices = left.time_ps - right.time_ps, right.size_bytes - left.size_bytes
        found = block.cheapest(*prices)
        if _cost(found, *prices) < _cost(left, *prices):
            yield found
            chords += [(left, found), (found, right)]


def _width(left: Cut, right: Cut) -> int:
    return (left.time_ps - right.time_ps) * (right.size_bytes - left.size_bytes)


def _cost(cut: Cut, of_byte: int, of_ps: int) -> int:
    return cut.size_bytes * of_byte + cut.time_ps * of_ps


class _Block:
    """The results of a block up to the last that is needed, where a recomputation stops."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._all = results
        last = max((i for i, result in enumerate(results) if result.is_needed), default=-1)
        self._results = results[: last + 1]
        self._times_ps = [round(_PS * result.time_ns) for result in self._results]
        self.time_ps = sum(self._times_ps)
        self.is_needed = last >= 0

    def ends(self) -> tuple[Cut, Cut]:
        """Give the choices of fewest bytes and of least time; the other one decides ties."""
        size_bytes = sum(result.size_bytes for result in self._results)
        return self.cheapest(self.time_ps + 1, 1), self.cheapest(1, size_bytes + 1)

    def cheapest(self, of_byte: int, of_ps: int) -> Cut:
        """Choose by a minimum cut, for these prices of a byte saved and of time spent again."""
        import networkx  # a quarter of a second

        # Backwards, since networkx gives the side of the sink as small as it can be: so nothing
        # is kept that nobody needs, and the choice does not hang on the order of a set.
        graph = self._graph(of_byte, of_ps).reverse(copy=False)
        kept: set[Any] = networkx.minimum_cut(graph, _LET_GO, _KEPT)[1][1]
        places = range(len(self._results))
        again = {place for place in places if ("again", place) in kept}
        saved = {place for place in places if ("there", place) in kept} - again
        left_out = set(places) - saved - again
        if left_out:  # what comes after the last that is needed does not run anyway, but may
            left_out.update(range(len(self._results), len(self._all)))
        return Cut(
            saved=self._named(saved),
            left_out=self._named(left_out),
            size_bytes=sum(self._results[place].size_bytes for place in saved),
            time_ps=sum(self._times_ps[place] for place in again),
        )

    def _named(self, places: Iterable[int]) -> frozenset[Occurrence]:
        return frozenset(self._all[place].occurrence for place in places)

    def _graph(self, of_byte: int, of_ps: int) -> Any:
        """Make the graph, each result of which is there or not, and made again or not.

        What is there and not made again is saved. Edges without a capacity are never cut.
        """
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from((_KEPT, _LET_GO))
        for place, result in enumerate(self._results):
            there, again = ("there", place), ("again", place)
            if result.is_fixed:
                graph.add_edges_from([(_KEPT, again), (there, again)])
            else:
                graph.add_edge(there, again, capacity=result.size_bytes * of_byte)
            if result.is_needed:
                graph.add_edge(_KEPT, there)
            graph.add_edge(again, _LET_GO, capacity=self._times_ps[place] * of_ps)
            graph.add_edges_from((again, ("there", read)) for read in result.reads)
        return graph
