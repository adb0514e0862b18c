"""The processor time of this process, and how finely a clock moves. No torch."""

import resource
from collections.abc import Callable


def processor_ns() -> int:
    """Give the time that all threads of this process have spent on a processor.

    Not ``time.process_time_ns``: where CPU time is limited, as in a job, Linux moves that clock
    only with the scheduler, by about 4 ms.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


def tick_ns(clock: Callable[[], int]) -> int:
    """Measure how far a clock moves at once, by waiting for it to move once."""
    start_ns = clock()
    while (now_ns := clock()) == start_ns:
        pass
    return now_ns - start_ns
