"""Lifetimes on tapes small enough to follow by hand; a storage is named by its bytes."""

from haversack_server.memory.tape import Operation, Storage, Tape, measure, saved_storages


def tape(*operations: Operation, sizes: dict[str, int], output: str) -> Tape:
    storages = {name: Storage(name, size, size) for name, size in sizes.items()}
    return Tape(name="t", input="x", output=output, storages=storages, operations=operations)


# y = f(x), z = g(y): f saves x, g saves y; x 10 bytes, y 4, z 2.
CHAIN = tape(
    Operation(name="f", reads=("x",), writes=("y",), saves=("x",), holds=("x",), flops=7),
    Operation(name="g", reads=("y",), writes=("z",), saves=("y",), holds=("y",), moved_bytes=6),
    sizes={"x": 10, "y": 4, "z": 2},
    output="z",
)


def test_retained_is_what_is_saved_and_the_output_without_the_input() -> None:
    assert measure(CHAIN, save=True).retained_bytes == 4 + 2


def test_the_input_counts_among_the_saved_storages_but_not_in_bytes() -> None:
    assert saved_storages(CHAIN) == {"x", "y"}
    assert CHAIN.size_of(saved_storages(CHAIN)) == 4


def test_the_forward_peak_counts_what_is_alive_together() -> None:
    assert measure(CHAIN, save=True).forward_peak_bytes == 4 + 2


def test_backward_holds_saved_storages_and_the_gradients_of_both_sides() -> None:
    # g: saved y 4, dz 2, dy 4 = 10. f: dy 4, dx 10 = 14, since y and dz are gone.
    assert measure(CHAIN, save=True).backward_peak_bytes == 14


def test_recompute_retains_the_output_alone() -> None:
    row = measure(CHAIN, save=False)
    assert row.name == "recompute"
    assert row.retained_bytes == 2


def test_recompute_counts_the_rebuilt_storages_beside_the_gradient_that_waits() -> None:
    wide = tape(
        Operation(name="f", reads=("x",), writes=("y",), saves=("x",)),
        Operation(name="h", reads=("y",), writes=("w",)),
        Operation(name="g", reads=("w",), writes=("z",), saves=("y",)),
        sizes={"x": 1, "y": 4, "w": 100, "z": 2},
        output="z",
    )
    # Again up to g, the last that saves: dz 2, y 4, w 100, z 2. In backward: y 4, dz 2, dw 100.
    assert measure(wide, save=False).backward_peak_bytes == 2 + 4 + 100 + 2


def test_recompute_stops_early_once_all_that_was_saved_is_there() -> None:
    late = tape(
        Operation(name="f", reads=("x",), writes=("y",), saves=("x",), flops=5),
        Operation(name="g", reads=("y",), writes=("z",), flops=1000),
        sizes={"x": 1, "y": 4, "z": 2},
        output="z",
    )
    assert measure(late, save=False).flops == 5


def test_save_costs_nothing_and_recompute_the_forward_work() -> None:
    assert measure(CHAIN, save=True).work == ()
    row = measure(CHAIN, save=False)
    assert (row.flops, row.moved_bytes, row.work) == (7, 6, ((7, 0), (0, 6)))


def test_a_storage_dies_after_its_last_reader() -> None:
    steps = tape(
        Operation(name="a", reads=("x",), writes=("p",)),
        Operation(name="b", reads=("p",), writes=("q",)),
        Operation(name="c", reads=("q",), writes=("r",)),
        sizes={"x": 1, "p": 10, "q": 20, "r": 5},
        output="r",
    )
    assert measure(steps, save=True).forward_peak_bytes == 10 + 20


def test_a_variable_holds_a_storage_beyond_its_last_reader() -> None:
    steps = tape(
        Operation(name="a", reads=("x",), writes=("p",)),
        Operation(name="b", reads=("p",), writes=("q",)),
        Operation(name="c", reads=("q",), writes=("r",), holds=("p",)),
        sizes={"x": 1, "p": 10, "q": 20, "r": 5},
        output="r",
    )
    assert measure(steps, save=True).forward_peak_bytes == 10 + 20 + 5


def test_scratch_counts_while_its_operation_runs() -> None:
    steps = tape(
        Operation(
            name="a",
            reads=("x",),
            writes=("y",),
            forward_scratch_bytes=3,
            backward_scratch_bytes=30,
        ),
        sizes={"x": 10, "y": 4},
        output="y",
    )
    row = measure(steps, save=True)
    assert row.forward_peak_bytes == 4 + 3
    assert row.backward_peak_bytes == 4 + 10 + 30


def test_a_sum_hands_its_gradient_on_and_a_second_gradient_is_added_in_a_third_buffer() -> None:
    # y = x + f(x), all of 8 bytes; f saves x. Backward: dy 8; df(x) shares it; dx of f is new;
    # then old, new and their sum are alive: 24.
    residual = tape(
        Operation(name="f", reads=("x",), writes=("f",), saves=("x",)),
        Operation(name="sum", reads=("x", "f"), writes=("y",), passes_gradient=True),
        sizes={"x": 8, "f": 8, "y": 8},
        output="y",
    )
    assert measure(residual, save=True).backward_peak_bytes == 24


def test_a_storage_that_two_operations_save_lives_until_the_earlier_one_is_done() -> None:
    twice = tape(
        Operation(name="a", reads=("x",), writes=("p",), saves=("p",)),
        Operation(name="b", reads=("p",), writes=("q",), saves=("p",)),
        sizes={"x": 1, "p": 10, "q": 2},
        output="q",
    )
    # b: p 10, dq 2, dp 10; a: p 10, dp 10, dx 1.
    assert measure(twice, save=True).backward_peak_bytes == 22


def test_no_gradient_flows_into_a_storage_that_has_none() -> None:
    masked = Tape(
        name="t",
        input="x",
        output="y",
        storages={
            "x": Storage("x", 8, 8),
            "mask": Storage("mask", 100, 0),
            "y": Storage("y", 8, 8),
        },
        operations=(
            Operation(name="make", writes=("mask",)),
            Operation(name="f", reads=("x", "mask"), writes=("y",), saves=("mask",)),
        ),
    )
    assert measure(masked, save=True).backward_peak_bytes == 100 + 8 + 8


def test_a_view_has_no_bytes_but_a_gradient_that_is_joined_with_its_sisters() -> None:
    # x -> joined 6 -> views of 3 each -> one product of 3 that saves joined.
    views = Tape(
        name="t",
        input="x",
        output="y",
        storages={
            "x": Storage("x", 6, 6),
            "joined": Storage("joined", 6, 6),
            "left": Storage("left", 0, 3),
            "right": Storage("right", 0, 3),
            "y": Storage("y", 3, 3),
        },
        operations=(
            Operation(name="f", reads=("x",), writes=("joined",), saves=("x",)),
            Operation(name="split", reads=("joined",), writes=("left", "right")),
            Operation(
                name="g",
                reads=("left", "right"),
                writes=("y",),
                saves=("joined",),
                holds=("joined",),
            ),
        ),
    )
    row = measure(views, save=True)
    assert row.retained_bytes == 6 + 3
    assert row.forward_peak_bytes == 6 + 3
    # g: joined 6, dy 3, two halves 6 = 15; split: halves 6, djoined 6; f: djoined 6, dx 6.
    assert row.backward_peak_bytes == 15


def test_a_selective_policy_keeps_what_its_scope_takes_from_outside() -> None:
    scoped = tape(
        Operation(name="a", reads=("x",), writes=("p",), saves=("x",)),
        Operation(
            name="core", reads=("p",), writes=("s",), saves=("s",), holds=("p",), scope="core"
        ),
        Operation(name="out", reads=("s",), writes=("q",), saves=("s",), scope="core"),
        Operation(name="b", reads=("q",), writes=("y",), saves=("q",)),
        sizes={"x": 1, "p": 10, "s": 1000, "q": 5, "y": 2},
        output="y",
    )
    row = measure(scoped, save=True, recompute_scope="core")
    assert row.name == "selective"
    assert row.retained_bytes == 10 + 5 + 2
    # At out's backward s is there again: p 10, s 1000, dq 5, ds 1000. At core's: p, s, ds, dp.
    assert row.backward_peak_bytes == 10 + 1000 + 1000 + 10
