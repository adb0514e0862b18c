"""What usually cures a finding, in one sentence for each class of it."""

from collections.abc import Collection

from haversack.verify import Facet, FacetValue

_DIFFERENT = {
    Facet.OUTPUTS: "Outputs differ before any replay: look for code that asks whether it runs "
    "under activation checkpointing, such as a cache that is switched off",
    Facet.INPUT_GRADIENTS: "Make the region a pure function of its tensor arguments: pass what "
    "changes as a positional argument, or keep it unchanged until backward",
    Facet.PARAMETER_GRADIENTS: "Make the region a pure function of its tensor arguments: pass what "
    "changes as a positional argument, or keep it unchanged until backward",
    Facet.BUFFERS: "The replay updates buffers once more: keep BatchNorm and other running "
    "statistics outside regions, freeze their update in the replay, or take a momentum whose two "
    "updates equal one",
    Facet.SIDE_EFFECTS: "Code with effects runs once more in the replay: move it out of regions",
    Facet.RECOMPUTE_COUNTS: "Look for regions inside regions, and for a second backward",
    Facet.MEMORY: "Regions that keep their tensors elsewhere, or are too small, save nothing: take "
    "larger regions, and look for tensors held in attributes or by the caller",
}
_RAISED = (
    "The replay took another path than its forward: look at what changed between them (modes, "
    "caches, attributes, random numbers outside torch)"
)


def fix_hint(facet: Facet, value: FacetValue, sources: Collection[str] = ()) -> str:
    """Say what usually cures a finding; empty where nothing is to be cured.

    ``sources`` are the random generators whose states differ.
    """
    if value is FacetValue.RAISED_ONLY_CHECKPOINTED:
        return _RAISED
    if value is FacetValue.NOT_RECOMPUTED:
        return "The region needs no replay: nothing in it is saved for backward, so drop it"
    if value is not FacetValue.DIFFERENT:
        return ""
    if facet is Facet.RNG:
        return _random_hint(sources)
    return _DIFFERENT.get(facet, "")


def _random_hint(sources: Collection[str]) -> str:
    if any(not source.startswith("torch ") for source in sources):
        return (
            "Only torch's default generators are restored for a replay: draw from torch, or draw "
            "outside the region and pass what was drawn"
        )
    return "Leave preserve_rng_state on, so that a replay draws what its forward drew"
