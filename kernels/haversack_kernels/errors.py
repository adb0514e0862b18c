"""What a kernel raises beyond ``ValueError``, ``TypeError`` and ``OverflowError``."""


class SolveCancelled(Exception):  # noqa: N818 - a wish that was granted, not an error
    """Tell that the cancel flag was set before the solve had an answer.

    ``states`` is the number of states that had been looked at by then.
    """

    def __init__(self, states: int) -> None:
        super().__init__(f"the solve was cancelled after {states} states")
        self.states = states


class DeviceFailedError(RuntimeError):
    """Tell that a device could not solve, though another may: a fault, a crash, too little memory.

    Raised by what a ``dispatch.Device`` calls; dispatch turns to the other devices.
    """
