"""Model states on the host: what DeepSpeed, FSDP and Megatron-LM move there, and what they add.

- DeepSpeed, offload_optimizer: master weights, moments and the step; fp32 gradients of the rank's
  partition, and its parameters once more on their way back (stages 1 and 2) or its gradients as
  they arrive (stage 3). Source: runtime/zero/stage_1_and_2.py (``single_partition_of_fp32_groups``,
  ``param_buffer_of_bit16_for_cpu_offload_groups``), stage3.py (``grad_partitions_flat_buffer``,
  ``fp32_partitioned_groups_flat``). Stage 1 sends the gradients of its own partition only when all
  are made, so they stay on the device.
- DeepSpeed, offload_param (stage 3): the parameters' shards.
- FSDP1 ``CPUOffload``, FSDP2 ``CPUOffloadPolicy``: shards, their gradients and all of the state.
- Megatron-LM, optimizer-cpu-offload: master weights, moments and a copy of the gradients. Source:
  core/optimizer/cpu_offloading.

Knows nothing of buffers that stay on the device: those are the schedules'.
"""

from dataclasses import dataclass
from typing import NamedTuple

from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism, Sharding
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.recipe import Recipe

FP32 = 4
RANKS_PER_NODE = 8
_FSDP = (Sharding.FSDP1, Sharding.FSDP2)
_DEEPSPEED = (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStates:
    """Bytes that one rank keeps on the host; ``paged_bytes`` may be on either side.

    ``activation_bytes`` wait there for their backward, in pinned memory whatever else is.
    """

    parameter_bytes: int = 0
    gradient_bytes: int = 0
    master_bytes: int = 0
    moment_bytes: int = 0
    staging_bytes: int = 0
    paged_bytes: int = 0
    activation_bytes: int = 0
    is_pinned: bool = False

    @property
    def total_bytes(self) -> int:
        """All of it, at most."""
        kept = self.moment_bytes + self.paged_bytes + self.activation_bytes
        return self._movable_bytes + kept

    @property
    def pinned_bytes(self) -> int:
        """What is copied to and from the device, if that is pinned; moments never are."""
        return self.activation_bytes + (self._movable_bytes if self.is_pinned else 0)

    @property
    def _movable_bytes(self) -> int:
        copies = self.master_bytes + self.staging_bytes
        return self.parameter_bytes + self.gradient_bytes + copies


EMPTY = HostStates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """What lives on the host; ``gradients``: the device does not keep them either."""

    optimizer: bool = False
    gradients: bool = False
    parameters: bool = False
    pinned: bool = False
    sharding: Sharding = Sharding.UNSPECIFIED

    def __bool__(self) -> bool:
        return self.optimizer or self.parameters

    def host_states(
        self, recipe: Recipe, trained: int, *, parameters: int, moments: int
    ) -> HostStates:
        """Size what a rank with so many trained elements keeps on the host."""
        kept = parameters if self.parameters else 0
        if self.sharding in _FSDP:
            return HostStates(
                parameter_bytes=kept,
                gradient_bytes=trained * recipe.gradient,
                master_bytes=trained * recipe.master,
                moment_bytes=moments,
                is_pinned=self.pinned,
            )
        if not self.optimizer:
            return HostStates(parameter_bytes=kept, is_pinned=self.pinned)
        on_its_way = recipe.gradient if self.sharding is Sharding.ZERO_3 else recipe.parameter
        return HostStates(
            parameter_bytes=kept,
            gradient_bytes=trained * FP32,
            # A step on the host has an fp32 copy to update, whatever the device holds.
            master_bytes=trained * FP32,
            moment_bytes=moments,
            staging_bytes=trained * on_its_way if self.sharding in _DEEPSPEED else 0,
            is_pinned=self.pinned,
        )


NOTHING = Offload()


class Kept(NamedTuple):
    """Where model states stay, and whether gradients are used up in backward, one by one."""

    offload: Offload = NOTHING
    in_backward: bool = False


ALL = Kept()


def offload_of(parallelism: Parallelism, degrees: Degrees) -> Offload:
    """Read what is offloaded; refuses what no framework offers."""
    optimizer, parameters = parallelism.offload_optimizer, parallelism.offload_parameters
    sharding = degrees.sharding
    if not (optimizer or parameters):
        return NOTHING
    _check(bool(optimizer), bool(parameters), sharding)
    fsdp = sharding in _FSDP
    by_default = sharding not in _DEEPSPEED
    return Offload(
        optimizer=fsdp or bool(optimizer),
        gradients=fsdp or (bool(optimizer) and sharding in (Sharding.ZERO_2, Sharding.ZERO_3)),
        parameters=bool(parameters),
        pinned=by_default if parallelism.pin_memory is None else parallelism.pin_memory,
        sharding=sharding,
    )


def _check(optimizer: bool, parameters: bool, sharding: Sharding) -> None:
    if sharding in _FSDP and not parameters:
        raise InvalidRequestError(
            f"{sharding.name} offloads shards, gradients and optimizer state together; give "
            "offload_parameters, or a ZeRO stage",
            field="parallelism.offload_optimizer",
        )
    if parameters and sharding not in (*_FSDP, Sharding.ZERO_3):
        raise InvalidRequestError(
            f"{sharding.name} keeps parameters whole on the device; offload_parameters takes "
            "ZERO_3, FSDP1 or FSDP2",
            field="parallelism.offload_parameters",
        )


def ranks_per_node(parallelism: Parallelism, degrees: Degrees) -> int:
    """Count the ranks that share a host's memory."""
    return min(parallelism.ranks_per_node or RANKS_PER_NODE, degrees.world_size)
