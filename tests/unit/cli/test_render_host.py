"""What lies on the host, on the page of an estimate."""

from tests.unit.cli.samples import drawn

from haversack.cli.render.host import draw_host
from haversack.estimate import Estimate, HostMemory, Term, TermCategory

GIB = 2**30
HOST = HostMemory(
    rank_bytes=18 * GIB,
    pinned_bytes=10 * GIB,
    ranks_per_node=4,
    node_bytes=72 * GIB,
    terms=(
        Term(name="optimizer moments", category=TermCategory.OPTIMIZER, bytes=8 * GIB),
        Term(name="gradients", category=TermCategory.GRADIENT, bytes=10 * GIB),
    ),
)


def test_terms_rank_node_and_pinned_bytes_are_shown() -> None:
    text = " ".join(drawn(draw_host, Estimate(host=HOST)).split())
    assert "optimizer moments 8.00 GiB" in text
    assert "18.00 GiB a rank, 72.00 GiB on a node of 4 ranks; pinned: 10.00 GiB" in text


def test_without_a_host_nothing_is_drawn() -> None:
    assert drawn(draw_host, Estimate()).strip() == ""
