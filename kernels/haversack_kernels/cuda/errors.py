"""What a solve on a CUDA device raises beyond what the same solve on the CPU does."""


class NoDeviceError(RuntimeError):
    """Tell that there is no CUDA device, or no numba-cuda to use it with."""


class DeviceFaultError(RuntimeError):
    """Tell that the driver reported an error.

    After a ``sticky`` one this process can use the device no more, and every further solve in it
    raises the same; another process can.
    """

    def __init__(self, message: str, *, sticky: bool) -> None:
        super().__init__(message)
        self.sticky = sticky
