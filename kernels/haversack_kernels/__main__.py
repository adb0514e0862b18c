"""``python -m haversack_kernels``: compiles every kernel, and reports it as one JSON object."""

import json

from haversack_kernels import cache
from haversack_kernels.warmup import warm_up


def main() -> None:
    """Warm up and print the report."""
    warm_up()
    print(json.dumps(cache.report()._asdict()))


if __name__ == "__main__":
    main()
