"""The blocks of one pipeline stage as a step runs them: each with its option, and its gradients.

What collectives and their costs count.
"""

from haversack.run import Training
from haversack_server.memory.architecture import UnitKind
from haversack_server.memory.chain import Chain
from haversack_server.memory.choices import choose
from haversack_server.memory.model_run import ModelRun


class Stage:
    """The blocks of one rank, each with its option."""

    def __init__(self, run: ModelRun, chain: Chain, training: Training) -> None:
        known = {block.name: None for block in run.chain.blocks}
        choice = choose(chain, training, known)
        self.run = run
        self.chain = chain
        self.options = [
            (block, block.options[index]) for block, index in zip(chain.blocks, choice, strict=True)
        ]

    @property
    def recompute_ns(self) -> int:
        """The time of a step that goes into recomputation."""
        return sum(option.extra_ns for _, option in self.options)

    @property
    def elements(self) -> int:
        """The parameters of the rank, whole."""
        return sum(block.unit.whole for block in self.chain.blocks)

    @property
    def buckets(self) -> int:
        """The reduce buckets of its gradients."""
        return -(-self.elements // max(1, self.chain.schedule.reduce_bucket_elements))

    @property
    def layer_passes(self) -> int:
        """Passes through layers in a step: forward, backward, and forward again."""
        units = self.run.architecture.units
        layers = {unit.name for unit in units if unit.kind is UnitKind.LAYER}
        passes = sum(
            3 if option.name == "recompute" else 2
            for block, option in self.options
            if block.name in layers
        )
        return passes * self.chain.accumulation
