"""What usually cures a finding, in one sentence for each class of it."""

from collections.abc import Collection, Mapping

from haversack.verify import DifferenceCause, Facet, FacetValue

_DIFFERENT = {
    Facet.OUTPUTS: "Outputs differ before any replay: look for code that asks whether it runs "
    "under activation checkpointing, such as a cache that is switched off",
    Facet.INPUT_GRADIENTS: "Make the region a pure function of its tensor arguments: pass what "
    "changes as a positional argument, or keep it unchanged until backward",
    Facet.PARAMETER_GRADIENTS: "Make the region a pure function of its tensor arguments: pass what "
    "changes as a positional argument, or keep it unchanged until backward",
    Facet.BUFFERS: "The replay updates buffers once more: keep BatchNorm and other running "
    "statistics, and what writes weights, outside regions, freeze their update in the replay, or "
    "take a momentum whose two updates equal one",
    Facet.SIDE_EFFECTS: "Code with effects runs once more in the replay: move it out of regions",
    Facet.RECOMPUTE_COUNTS: "Look for regions inside regions, and for a second backward",
    Facet.MEMORY: "Regions that keep their tensors elsewhere, or are too small, save nothing: take "
    "larger regions, and look for tensors held in attributes or by the caller",
}
_RAISED = (
    "The replay took another path than its forward: look at what changed between them (modes, "
    "caches, attributes, random numbers outside torch)"
)

_CAUSES: Mapping[DifferenceCause, str] = {
    DifferenceCause.CONTROL_FLOW: "The replay takes another branch: decide it outside the region "
    "from what does not change, and pass the decision as an argument",
    DifferenceCause.SCALAR_ARGUMENT: "A number that the region reads has changed: pass it as an "
    "argument, or keep counters, settings and draws of Python's random outside the region (or "
    "restore those with context_fn=haversack.torch.replay_context())",
    DifferenceCause.EXTERNAL_TENSOR: "A tensor from outside the region has changed: pass it as a "
    "positional argument or clone it, update buffers and caches outside the region, and draw "
    "numpy's numbers there (or restore them with context_fn=haversack.torch.replay_context())",
    DifferenceCause.SHAPE: "A tensor has another shape or dtype in the replay: keep caches that "
    "grow, and routing that is not saved, outside the region, gather shards before it, and set "
    "modes such as the default dtype inside it",
    DifferenceCause.RNG: "The replay draws other numbers: leave preserve_rng_state on, and seed "
    "torch inside a region by nothing that changes",
    DifferenceCause.RNG_GENERATOR: "The region draws from a generator of its own, which no replay "
    "restores: name it in context_fn=haversack.torch.replay_context(generators=[...])",
    DifferenceCause.NONDETERMINISTIC_KERNEL: "An operation gives another result for equal inputs: "
    "save what it returns (a router's scores and choices, say), or use deterministic algorithms; "
    "where a policy saves it, do not change it in place; open a mode that changes results inside "
    "the region",
    DifferenceCause.MISSING_OPERATIONS: "The replay leaves operations out: look for a memo or a "
    "flag that the forward has set, and for an exception that the region catches",
    DifferenceCause.EXTRA_OPERATIONS: "The replay runs more operations: look for a count or a list "
    "that the forward has left longer",
    DifferenceCause.STATE_ONLY: "Replays move a list, a counter or a history on once more, "
    "and what comes later uses it: update it outside the region",
}


def cause_hint(cause: DifferenceCause) -> str:
    """Say what usually cures a first difference of a class; empty for a class without a cure."""
    return _CAUSES.get(cause, "")


def fix_hint(facet: Facet, value: FacetValue, sources: Collection[str] = ()) -> str:
    """Say what usually cures a finding; empty where nothing is to be cured.

    ``sources`` are the random generators whose states differ.
    """
    if value is FacetValue.RAISED_ONLY_CHECKPOINTED:
        return _RAISED
    if value is FacetValue.NOT_RECOMPUTED:
        return (
            "The region needs no replay: nothing in it is saved for backward, or no backward comes "
            "through it; drop it"
        )
    if value is not FacetValue.DIFFERENT:
        return ""
    if facet is Facet.RNG:
        return _random_hint(sources)
    return _DIFFERENT.get(facet, "")


def _random_hint(sources: Collection[str]) -> str:
    if any(not source.startswith("torch ") for source in sources):
        return (
            "Only torch's default generators are restored for a replay: draw from torch, draw "
            "outside the region and pass what was drawn, or restore the others with "
            "context_fn=haversack.torch.replay_context()"
        )
    if set(sources) <= {"torch cpu"}:
        return "Leave preserve_rng_state on, so that a replay draws what its forward drew"
    return (
        "Leave preserve_rng_state on, and give each region a positional tensor on every device "
        "that it draws on: PyTorch restores the generators of the CPU and of these devices"
    )
