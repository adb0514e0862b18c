"""The storages of a tape that is being written: names made unique, bytes, bytes per element, views.

Knows nothing of the operations that write and read them.
"""

from collections.abc import Sequence

from haversack_server.memory.autocast import Autocast
from haversack_server.memory.tape import Storage


class Storages:
    """Declares storages under unique names, and knows how large and how wide each one is."""

    def __init__(self, itemsize: int, autocast: Autocast | None) -> None:
        self.itemsize = itemsize
        self.autocast = autocast
        self._storages: dict[str, Storage] = {}
        self._outer: list[str] = []
        self._bases: dict[str, str] = {}  # a view -> the storage that it shows
        self._widths: dict[str, int] = {}  # bytes of an element, where autocast has others

    def storage(
        self, name: str, size_bytes: int, gradient_bytes: int | None = None, *, width: int = 0
    ) -> str:
        """Declare a storage; its gradient is as large as itself unless said otherwise."""
        unique = f"{name} #{len(self._storages)}"
        if width and self.autocast:
            self._widths[unique] = width
        gradient = size_bytes if gradient_bytes is None else gradient_bytes
        self._storages[unique] = Storage(unique, size_bytes, gradient)
        return unique

    def outer(self, name: str, size_bytes: int) -> str:
        """Declare a storage of an earlier unit: its bytes count there, its gradient here."""
        result = self.storage(name, 0, size_bytes)
        self._bases[result] = result
        self._outer.append(result)
        return result

    def size(self, name: str) -> int:
        """Return the bytes of a storage, or of what a view shows."""
        row = self._storages[name]
        return row.gradient_bytes if name in self._bases else row.size_bytes

    def width(self, name: str) -> int:
        """Return the bytes of an element, as autocast's rules have it."""
        return self._widths.get(name, self.itemsize)

    def wide_size(self, name: str) -> int:
        """Return the bytes of a storage's elements in the residual stream's type."""
        return self.size(name) // self.width(name) * self.itemsize

    def _widest(self, reads: Sequence[str]) -> int:
        return max(map(self.width, reads), default=self.itemsize)

    def _base(self, name: str) -> str:
        return self._bases.get(name, name)
