"""What lies in the memory of the hosts, on a page: by term, for a rank and for a node."""

from haversack.cli.render.page import DIM, Column, Page
from haversack.estimate import Estimate
from haversack.units import format_bytes


def draw_host(page: Page, answer: Estimate) -> None:
    """Draw it; nothing where nothing is offloaded or paged."""
    host = answer.host
    if host is None:
        return
    page.heading("On the host", "for each rank of the fullest class, beside the process itself")
    page.table(
        [Column(), Column("bytes", figures=True), Column(style=DIM)],
        [(term.name, format_bytes(term.bytes), term.formula) for term in host.terms],
    )
    pinned = format_bytes(host.pinned_bytes) if host.pinned_bytes else "none"
    node = f"{format_bytes(host.node_bytes)} on a node of {host.ranks_per_node} ranks"
    page.indented((f"{format_bytes(host.rank_bytes)} a rank, {node}; pinned: {pinned}", DIM))
