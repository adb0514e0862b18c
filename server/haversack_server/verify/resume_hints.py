"""What usually cures a training run that does not go on as it would have: a sentence per facet."""

from haversack.verify import Facet, FacetValue

_HINTS = {
    Facet.PARAMETERS: "Keep every parameter (get_model_state_dict gives them), and look for names "
    "that save or restore leaves out",
    Facet.BUFFERS: "Keep buffers too: make them persistent, or put those that are not into extras; "
    "where ranks hold different ones, each must keep its own",
    Facet.OPTIMIZER_STATE: "Keep get_optimizer_state_dict of model and optimizer, which has "
    "moments, step counts and the settings of every group, and put it back after the optimizer is "
    "made",
    Facet.SCHEDULE: "Keep the schedule's state_dict and put it back: a new one begins at step 0, "
    "and sets the learning rate by that",
    Facet.RNG: "Each rank keeps random states of its own (torch, python, numpy) under a name that "
    "has its rank, and puts them back last: what ranks save under one name is the state of one",
    Facet.SAMPLER_POSITION: "Keep the state_dict of the data, and put it back: a new one begins "
    "with the first sample again",
    Facet.EXTRA_STATE: "Keep the state_dict of everything in extras, and put it back",
    Facet.NEXT_STEPS: "All that is looked at was put back, so the next steps stand on something "
    "else: make it a buffer, or give it a name in extras",
}
_SAMPLES = (
    "All that data says of itself was put back, but other samples follow: its state_dict leaves "
    "out what decides on them, such as the generator of a shuffle, an epoch, or samples fetched "
    "ahead"
)
_RANDOM_ON_OTHERS = (
    "Keep the random states of all ranks, and give each rank that goes on one of its own: that of "
    "a rank that saved, or what is drawn from one where more go on than saved"
)
_RANDOM_UNKNOWN = (
    "Nothing to do if every rank goes on with numbers of its own that no other rank draws and that "
    "were not drawn before: what a rank is given here is not what a rank saved"
)
_ANOTHER_NUMBER = (
    "Training on this number of ranks differs without a stop too: random numbers and statistics of "
    "a batch are each rank's own, and a loss that is a sum grows with a rank's samples; make it a "
    "mean, or go on with as many ranks as saved"
)
_UNSTEADY = (
    "Make training repeat itself first: seeds of its own, deterministic kernels, no clock in it"
)


def resume_hint(
    facet: Facet, value: FacetValue, *, same_ranks: bool, other_samples: bool = False
) -> str:
    """Say what usually cures a finding; empty where nothing is to be cured."""
    if facet is Facet.RNG and not same_ranks:
        on_others = {FacetValue.DIFFERENT: _RANDOM_ON_OTHERS}
        return (on_others | {FacetValue.INCONCLUSIVE: _RANDOM_UNKNOWN}).get(value, "")
    if value is FacetValue.INCONCLUSIVE:
        return _UNSTEADY if same_ranks else _ANOTHER_NUMBER
    if value is not FacetValue.DIFFERENT:
        return ""
    if facet is Facet.NEXT_STEPS and other_samples:
        return _SAMPLES
    return _HINTS[facet]
