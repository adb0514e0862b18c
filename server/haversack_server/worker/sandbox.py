"""The part of a job's confinement that not every kernel has: namespaces, Landlock, privileges.

Each piece is tried by itself; what is refused is said, and the job runs on without it.
"""

import contextlib
import errno
import os
from dataclasses import dataclass, field

from haversack_server.worker import gpu_driver, landlock, namespaces, system
from haversack_server.worker.limits import Limits, limit_processes, processes_of_user

_READ_WHAT_OTHERS_OWN = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_NETWORK, _WRITING, _PROGRAMS = "the network", "writing outside the scratch folder", "programs"
_PROCESSES, _OTHERS = "the number of processes", "other processes of its user"


def enter(limits: Limits) -> list[str]:
    """Enter the sandbox; say what holds and, last, what is not contained.

    Where there are namespaces, what returns is a child inside them.
    """
    found = _Sandbox(limits)
    if not limits.sandbox:
        found.said.append("No namespaces and no Landlock: NCCL was not tried inside either")
        found.leave_open()
    elif limits.gpu:
        found.close_around_gpu()
    elif found.has_namespaces():
        found.close_inside()
    else:
        found.close_outside()
    return [*found.said, f"Not contained: {', '.join(['reading files', *found.open])}"]


@dataclass(slots=True)
class _Sandbox:
    limits: Limits
    said: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def has_namespaces(self) -> bool:
        try:
            kinds = "User, network" if namespaces.enter() else "Network"
        except OSError as refused:
            is_limit = refused.errno == errno.ENOSPC
            reason = "user.max_user_namespaces allows no more" if is_limit else refused.strerror
            self.said.append(f"No namespaces of its own: {reason}")
            return False
        self.said.append(
            f"{kinds}, process and IPC namespaces of its own: no network but a loopback of its "
            "own, no other process in sight"
        )
        return True

    def close_inside(self) -> None:
        """Close what is open inside the namespaces."""
        most = self.limits.processes + self.limits.threads
        # In the user namespace only its own count; for root the other limit does it.
        of_user = limit_processes(most, held=0)
        self._say_processes(most, namespaces.limit_processes(most) or of_user)
        with contextlib.suppress(OSError):  # it only serves jobs of several ranks
            namespaces.raise_loopback()
        self.give_up_new_privileges()
        self._restrict_files(tcp=True)
        self._give_up_capabilities()

    def close_outside(self) -> None:
        """Close what can be closed without namespaces."""
        most = self.limits.processes + self.limits.threads
        self._say_processes(most, limit_processes(most, held=processes_of_user()))
        self.give_up_new_privileges()
        known = self._restrict_files(tcp=False)
        self.open.append(f"{_NETWORK} but for TCP" if known >= 4 else _NETWORK)
        if known < 6:
            self.open.append(_OTHERS)
        self._give_up_capabilities()

    def close_around_gpu(self) -> None:
        """Close what can be closed without namespaces, if the GPU's driver works inside of it."""
        os.environ["CUDA_CACHE_PATH"] = os.path.join(self.limits.scratch, gpu_driver.CACHE)
        said, left_open = list(self.said), list(self.open)
        refusal = gpu_driver.refusal_inside(self.close_outside)
        self.said, self.open = said, left_open
        if refusal:
            self.said.append(f"No Landlock: a GPU's driver was tried inside it, and {refusal}")
            self.leave_open()
            return
        self.said.append("No namespaces: they were not tried with a GPU's driver")
        self.close_outside()

    def leave_open(self) -> None:
        """Close nothing but the way to more privileges."""
        self.open += [_NETWORK, _WRITING, _PROGRAMS, _PROCESSES, _OTHERS]
        self.give_up_new_privileges()

    def give_up_new_privileges(self) -> None:
        if system.holds(system.refuse_new_privileges):
            self.said.append("No new privileges")

    def _say_processes(self, most: int, is_limited: bool) -> None:
        if is_limited:
            self.said.append(f"At most {most} processes and threads")
        else:
            self.open.append(_PROCESSES)

    def _restrict_files(self, *, tcp: bool) -> int:
        """Restrict with Landlock; gives its version, 0 where there is none."""
        try:
            devices = [*_DEVICES, *(gpu_driver.device_files() if self.limits.gpu else ())]
            self.said += landlock.restrict(self.limits.scratch, devices, tcp=tcp)
        except OSError as refused:
            self.said.append(f"No Landlock: {refused.strerror}")
            self.open += [_WRITING, _PROGRAMS]
            return 0
        return landlock.version()

    def _give_up_capabilities(self) -> None:
        is_root = os.geteuid() == 0
        kept = _READ_WHAT_OTHERS_OWN if is_root else 0
        if system.holds(lambda: system.keep_capabilities(kept)):
            but = ", but root's to read what others own" if is_root else ""
            self.said.append(f"No capabilities{but}")
