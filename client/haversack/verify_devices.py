"""GPUs that jobs of Verify may have, and which of them a job had.

Plain records; what each field means is said once, in ``devices.proto``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyDevice:
    """A GPU that jobs may have, or a MIG instance of one."""

    device: str = ""
    name: str = ""
    uuid: str = ""
    parent_uuid: str = ""
    memory_bytes: int | None = None
    compute_mode: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ListVerifyDevicesRequest:
    """Asks which GPUs jobs may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListVerifyDevicesResponse:
    """The GPUs, as they are at the moment."""

    devices: tuple[VerifyDevice, ...] = ()
    notes: tuple[str, ...] = ()
    executor: str = ""
