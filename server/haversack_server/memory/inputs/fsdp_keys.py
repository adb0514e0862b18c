"""The FSDP settings that accelerate and transformers share, in the spellings of both versions.

Version 1 has a sharding strategy, version 2 whether units are resharded after their forward; a file
that mixes the two, or gives neither version nor strategy but a flag of version 2, is refused: they
are different schedules. Keys may carry accelerate's ``fsdp_`` in front. Reads no file.
"""

from dataclasses import dataclass

from haversack.parallelism import BackwardPrefetch, Sharding, WrapPolicy
from haversack.run import Recompute, StateDict
from haversack_server.memory.inputs.reader import Given, Reader
from haversack_server.memory.inputs.reading import ENGINE


@dataclass(frozen=True, slots=True)
class Strategy:
    """What a strategy of version 1 shards: parameters after forward too, or inside a node only."""

    sharding: Sharding
    reshards: bool | None
    is_hybrid: bool = False


_FULL = Strategy(Sharding.FSDP1, True)
_GRADIENTS = Strategy(Sharding.FSDP1, False)
_NONE = Strategy(Sharding.REPLICATED, None)
_HYBRID = Strategy(Sharding.FSDP1, True, is_hybrid=True)
_HYBRID_2 = Strategy(Sharding.FSDP1, False, is_hybrid=True)

# Names, and the numbers that old files carry (torch.distributed.fsdp.ShardingStrategy).
STRATEGIES = {
    "full_shard": _FULL,
    "1": _FULL,
    "shard_grad_op": _GRADIENTS,
    "2": _GRADIENTS,
    "no_shard": _NONE,
    "3": _NONE,
    "hybrid_shard": _HYBRID,
    "4": _HYBRID,
    "hybrid_shard_zero2": _HYBRID_2,
    "5": _HYBRID_2,
}
_PREFETCHES = {
    "backward_pre": BackwardPrefetch.PRE,
    "1": BackwardPrefetch.PRE,
    "backward_post": BackwardPrefetch.POST,
    "2": BackwardPrefetch.POST,
    "no_prefetch": BackwardPrefetch.NONE,
    "3": BackwardPrefetch.NONE,
}
_WRAPS = {
    "transformer_based_wrap": WrapPolicy.LAYERS,
    "size_based_wrap": None,
    "no_wrap": None,
}
_STATE_DICTS = {
    "full_state_dict": StateDict.FULL,
    "sharded_state_dict": StateDict.SHARDED,
    "local_state_dict": StateDict.SHARDED,
}
QUIET = (
    "use_orig_params",
    "sync_module_states",
    "cpu_ram_efficient_loading",
    "transformer_layer_cls_to_wrap",
    "min_num_params",
)


class FsdpKeys:
    """One section of FSDP settings, under the path and the spellings of its file."""

    def __init__(self, reader: Reader, section: str, ranks_per_node: int | None) -> None:
        self._reader = reader
        self._section = section
        self._ranks_per_node = ranks_per_node

    def keys(self, *names: str) -> tuple[str, ...]:
        """Spell names with and without the prefix, under the section."""
        paths = [each for name in names for each in (f"fsdp_{name}", name)]
        return tuple(f"{self._section}.{path}" for path in paths)

    def read(self, named: Strategy | None = None, at: str = "") -> None:
        """Read the section; ``named`` is a strategy that the file names elsewhere, at a key."""
        version = self._version(named, at)
        if version == 2:
            self._second(at)
        else:
            self._first(named, at)
        self._common()

    def _version(self, named: Strategy | None, at: str) -> int:
        """Find the version: as given, else 1 where there is a strategy, else an error if mixed."""
        reader = self._reader
        given = reader.whole(*self.keys("version"), least=1, most=2)
        strategy = reader.given(*self.keys("sharding_strategy"))
        reshard = self._reshard()
        first = strategy.key if strategy else (at if named else "")
        if given == 2 and first:
            reader.refuse(
                first, "is a strategy of FSDP version 1, but the version is 2; give one of them"
            )
        if given is None and reshard is not None and first:
            reader.refuse(
                reshard.key,
                f"belongs to FSDP version 2, but {first} to version 1; give the version",
            )
        elif given is None and reshard is not None:
            reader.refuse(
                reshard.key, "belongs to FSDP version 2, but the version is not given; give it"
            )
        if given is None and not first and reshard is None:
            reader.assume(f"{self._section}: FSDP version 1 and FULL_SHARD, accelerate's defaults")
        return given or 1

    def _reshard(self) -> Given | None:
        """Find the flag of version 2; under version 1 the key may hold the name of a strategy."""
        given = self._reader.given(*self.keys("reshard_after_forward"))
        if given is None or str(given.value).lower() not in STRATEGIES:
            return given
        # A number is a strategy of version 1 in old files and a number of ranks in new ones.
        version = self._reader.whole(*self.keys("version"))
        return given if version == 2 and type(given.value) is int else None

    def _first(self, named: Strategy | None, at: str) -> None:
        reader = self._reader
        keys = self.keys("sharding_strategy")
        here = reader.word(STRATEGIES, *keys)
        if here is None and self._reshard() is None:
            keys = self.keys("reshard_after_forward")
            here = reader.word(STRATEGIES, *keys)
        if here and named and here != named:
            reader.refuse(self._key(*keys), f"is another strategy than {at} names; make them agree")
        strategy, key = (here, self._key(*keys)) if here else (named or _FULL, at or self._section)
        reader.set(ENGINE, "fsdp1", key)
        reader.set("parallelism.sharding", strategy.sharding, key)
        reader.set("parallelism.reshard_after_forward", strategy.reshards, key)
        if strategy.is_hybrid:
            self._inside_node(key)
        reader.set_word(
            "parallelism.backward_prefetch",
            _PREFETCHES,
            *self.keys("backward_prefetch", "backward_prefetch_policy"),
        )
        self._flag("parallelism.forward_prefetch", "forward_prefetch")
        self._flag("parallelism.limit_all_gathers", "limit_all_gathers")

    def _second(self, at: str) -> None:
        reader = self._reader
        key = self._key(*self.keys("version"))
        reader.set(ENGINE, "fsdp2", key)
        reader.set("parallelism.sharding", Sharding.FSDP2, key)
        reshard = self._reshard()
        ranks = reshard.value if reshard and type(reshard.value) is int else None
        if ranks is not None and reshard is not None:
            reader.set("parallelism.reshard_ranks", ranks, reshard.key)
        elif reshard is not None:
            self._flag("parallelism.reshard_after_forward", "reshard_after_forward")
        for name in ("backward_prefetch", "backward_prefetch_policy", "forward_prefetch"):
            given = reader.given(*self.keys(name))
            if given is not None:
                reader.assume(f"{given.key}: FSDP version 2 has no such setting")

    def _common(self) -> None:
        reader = self._reader
        wrap = reader.given(*self.keys("auto_wrap_policy"))
        reader.set_word("parallelism.wrap", _WRAPS, *self.keys("auto_wrap_policy"))
        if wrap is not None and str(wrap.value).lower() in ("size_based_wrap", "no_wrap"):
            reader.unmodelled(wrap.key, "units that are no layers")
        full = reader.flag(*self.keys("activation_checkpointing"))
        if full is not None:
            recompute = Recompute.FULL if full else None
            key = self._key(*self.keys("activation_checkpointing"))
            reader.set("training.recompute", recompute, key)
        if reader.flag(*self.keys("offload_params", "cpu_offload")):
            key = self._key(*self.keys("offload_params", "cpu_offload"))
            reader.set("parallelism.offload_parameters", True, key)
        if reader.given(*self.keys("ignored_modules")):
            reader.unmodelled(self._key(*self.keys("ignored_modules")), "modules left whole")
        reader.set_word("training.state_dict", _STATE_DICTS, *self.keys("state_dict_type"))

    def _inside_node(self, key: str) -> None:
        """A hybrid strategy shards over the ranks of a node and replicates over nodes."""
        if self._ranks_per_node is None:
            self._reader.unmodelled(key, "a hybrid over an unknown number of machines")
            return
        self._reader.set("parallelism.dp_shard", self._ranks_per_node, key)

    def _flag(self, field: str, name: str) -> None:
        self._reader.set(field, self._reader.flag(*self.keys(name)), self._key(*self.keys(name)))

    def _key(self, *keys: str) -> str:
        given = self._reader.given(*keys)
        return given.key if given else keys[0]
