"""Writing a tape: its operations, sizes in rows and columns, what Python frames hold.

Knows how a matrix product, a view and an elementwise kernel behave under autograd. Knows nothing of
norms, attention or families; ``tape_storages`` keeps the storages and their bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from haversack_server.memory.adapters import adapted
from haversack_server.memory.autocast import Autocast
from haversack_server.memory.fp8 import Fp8, fp8_product
from haversack_server.memory.tape import Operation, Tape
from haversack_server.memory.tape_storages import Storages
from haversack_server.memory.tuning import Tuning


class TapeBuilder(Storages):
    """Collects operations in forward order; methods return the name of the storage they write.

    ``itemsize`` is the bytes of one element in the compute dtype, under autocast of one in the
    residual stream; ``tuning`` says which weights are frozen, None that none are; ``fp8`` how
    products run in 8 bits, None that they do not.
    """

    def __init__(
        self,
        name: str,
        itemsize: int,
        input_bytes: int,
        tuning: Tuning | None = None,
        autocast: Autocast | None = None,
        fp8: Fp8 | None = None,
    ) -> None:
        super().__init__(itemsize, autocast)
        self.name = name
        self.product_bytes = autocast.product_bytes if autocast else itemsize
        self.scope = ""
        self.tuning = tuning
        self.fp8 = fp8
        self.trains = tuning is None or tuning.norms_train  # the weights of norms
        self._operations: list[Operation] = []
        self._weights: list[str] = []  # copies of weights in autocast's cache
        self._attributes: list[str] = []  # inputs that products keep beside what autograd saves
        self.input = self.storage("input", input_bytes)

    def widened(self, name: str) -> str:
        """Let a kernel read a storage beside wider numbers: the gradient comes back in theirs."""
        if self.width(name) == self.itemsize:
            return name
        size = self.wide_size(name)
        return self.view("promoted", name, size, copies_gradient=True, width=self.itemsize)

    def operand(self, name: str) -> str:
        """Give a matrix product its operand, in a copy where autocast converts it."""
        if self.width(name) == self.product_bytes:
            return name
        size = self.size(name) // self.width(name) * self.product_bytes
        return self.apply("autocast copy", [name], size, width=self.product_bytes)

    def add(
        self,
        name: str,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        saves: Sequence[str] = (),
        *,
        passes_gradient: bool = False,
        backward_scratch_bytes: int = 0,
        forward_scratch_bytes: int = 0,
        flops: int = 0,
        parameter_bytes: int = 0,
    ) -> None:
        """Append one operation; it moves what it reads, what it writes, and its parameters."""
        self._operations.append(
            Operation(
                name=f"{name} @{len(self._operations)}",
                reads=tuple(reads),
                writes=tuple(writes),
                saves=tuple(map(self._base, saves)),
                holds=tuple(map(self._base, reads)),
                passes_gradient=passes_gradient,
                backward_scratch_bytes=backward_scratch_bytes,
                forward_scratch_bytes=forward_scratch_bytes,
                flops=flops,
                moved_bytes=parameter_bytes + sum(map(self.size, (*reads, *writes))),
                parameter_bytes=parameter_bytes,
                scope=self.scope,
            )
        )

    def apply(
        self,
        name: str,
        reads: Sequence[str],
        size_bytes: int,
        saves: Sequence[str] = (),
        *,
        backward_scratch_bytes: int = 0,
        saves_result: bool = False,
        width: int = 0,
    ) -> str:
        """Append an elementwise kernel or a reduction with one result of ``size_bytes``.

        Its elements are as wide as the widest that it reads, or of ``width`` bytes.
        """
        result = self.storage(name, size_bytes, width=width or self._widest(reads))
        kept = (*saves, result) if saves_result else saves
        self.add(name, reads, [result], kept, backward_scratch_bytes=backward_scratch_bytes)
        return result

    def passing(self, name: str, reads: Sequence[str], size_bytes: int) -> str:
        """Append a kernel whose backward hands the gradient on: a sum, a copy, a collective.

        What is narrower than its result gets its gradient back in a copy.
        """
        width = self._widest(reads)
        result = self.storage(name, size_bytes, width=width)
        sources = [self.widened(each) if width > self.width(each) else each for each in reads]
        self.add(name, sources, [result], passes_gradient=True)
        return result

    def view(
        self, name: str, source: str, size_bytes: int, *, copies_gradient: bool, width: int = 0
    ) -> str:
        """Append a view of ``size_bytes``; its gradient may need a copy to fit the source."""
        result = self.storage(name, 0, size_bytes, width=width or self.width(source))
        self._bases[result] = self._base(source)
        self._operations.append(
            Operation(
                name=f"{name} @{len(self._operations)}",
                reads=(source,),
                writes=(result,),
                holds=(self._base(source),),
                passes_gradient=not copies_gradient,
                scope=self.scope,
            )
        )
        return result

    def keep(self, name: str) -> None:
        """Let the last operation save one more storage."""
        last = self._operations[-1]
        kept = last._replace(saves=(*last.saves, name), holds=(*last.holds, name))
        self._operations[-1] = kept

    def split(
        self, name: str, source: str, names: Sequence[str], sizes: Sequence[int] = ()
    ) -> tuple[str, ...]:
        """Append a split into views, equal ones unless ``sizes`` says how many bytes each shows.

        Their gradients are joined in a new storage.
        """
        shown = sizes or (self.size(source) // len(names),) * len(names)
        width = self.width(source)
        views = tuple(
            self.storage(row, 0, size, width=width) for row, size in zip(names, shown, strict=True)
        )
        self._bases.update(dict.fromkeys(views, self._base(source)))
        self._operations.append(
            Operation(
                name=f"{name} @{len(self._operations)}",
                reads=(source,),
                writes=views,
                holds=(self._base(source),),
                scope=self.scope,
            )
        )
        return views

    def linear(
        self,
        name: str,
        source: str,
        rows: int,
        inputs: int,
        outputs: int,
        *,
        saved: str = "",
        parts: Mapping[str, int] | None = None,
    ) -> str:
        """Append ``rows x inputs`` times ``inputs x outputs``; the input is saved, or ``saved``.

        A frozen weight saves no input. A quantized one is made whole for the product, each way; its
        kernel may keep the input in an attribute. ``parts`` are the outputs of products that a
        framework joins in this one, which have adapters of their own.
        """
        if self.autocast:
            return self._cast_linear(name, source, rows, (inputs, outputs))
        if self.fp8 and self.fp8.runs(name):
            return fp8_product(self, name, source, rows, (inputs, outputs), saved)
        tuning, itemsize = self.tuning, self.itemsize
        result = self.storage(name, rows * outputs * itemsize)
        trains = tuning is None or tuning.trains(name)
        whole = tuning.dequantized_bytes(name, inputs * outputs, itemsize) if tuning else 0
        keeps = tuning is not None and tuning.keeps_input(name)
        if keeps:
            self._attributes.append(self._base(saved or source))
        self.add(
            name,
            [source],
            [result],
            [saved or source] if trains or keeps else [],
            # What stands in for the input is made into it again.
            backward_scratch_bytes=(self.size(source) if saved and trains else 0) + whole,
            forward_scratch_bytes=whole,
            flops=2 * rows * inputs * outputs,
            parameter_bytes=inputs * outputs * itemsize if trains else 0,
        )
        if tuning is None or not tuning.adapts(name):
            return result
        return adapted(self, tuning, source, result, rows, (inputs, outputs), parts or {})

    def _cast_linear(self, name: str, source: str, rows: int, sizes: tuple[int, int]) -> str:
        """Append a product of copies; the weight's gradient is made in the copy's type first."""
        elements, width = sizes[0] * sizes[1], self.product_bytes
        weight = self.storage(f"{name} weight copy", elements * width, width=width)
        self.add(f"{name} weight copy", [], [weight], parameter_bytes=elements * self.itemsize)
        self._weights.append(weight)
        operand = self.operand(source)
        result = self.storage(name, rows * sizes[1] * width, width=width)
        both, flops = [operand, weight], 2 * rows * elements
        self.add(name, both, [result], both, flops=flops)
        return result

    @contextmanager
    def scoped(self, scope: str) -> Iterator[None]:
        """Put what is appended into a scope, which a selective policy can name."""
        outer, self.scope = self.scope, scope
        yield
        self.scope = outer

    @contextmanager
    def frame(self) -> Iterator[list[str]]:
        """Hold what is put into the list until the frame ends, as local variables do."""
        held: list[str] = []
        yield held
        self.hold(held)

    def hold(self, names: Sequence[str]) -> None:
        """Keep storages alive up to here."""
        if names:
            number = len(self._operations)
            held = tuple(map(self._base, names))
            self._operations.append(Operation(name=f"hold @{number}", holds=held))

    def build(self, output: str) -> Tape:
        """Return the tape, with its output; autocast keeps its copies of weights beyond it."""
        self.hold(self._weights)
        return Tape(
            name=self.name,
            input=self.input,
            output=output,
            storages=self._storages,
            operations=tuple(self._operations),
            outer=tuple(self._outer),
            cached=tuple(self._weights),
            attributes=tuple(self._attributes),
        )
