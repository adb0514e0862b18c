"""Forwards that run as regions of ``torch.utils.checkpoint``, and can be put back.

A region takes the place of a module's ``forward``, so hooks, names of parameters and state dicts
stay as they are. Knows no plan.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.torch.replay import ContextFn
from haversack.torch.states import standing_states

# What checkpoint takes for its own settings, also where a block's arguments have these names.
SETTINGS = frozenset(
    (
        "use_reentrant",
        "context_fn",
        "determinism_check",
        "debug",
        "early_stop",
        "preserve_rng_state",
    )
)
# Names under which the layers of transformers take the cache that they write to.
_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache")
_CONTAINERS = (list, dict)  # a tuple of types: the compiler cannot trace a union of them
_Contexts = tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]


class Region:
    """A module's forward under a checkpoint; ``put`` makes it the module's own."""

    def __init__(
        self,
        name: str,
        module: nn.Module,
        *,
        context_fn: ContextFn | None = None,
        selective: ContextFn | None = None,
    ) -> None:
        self.name = name
        self.forward: Callable[..., Any] = module.forward
        self._own = module.__dict__.get("forward")
        self._selective = selective is not None
        self._settings: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": True}
        given = [each for each in (context_fn, selective) if each is not None]
        if given:
            self._settings["context_fn"] = functools.reduce(both, given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward; recompute it in backward, if there will be one."""
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        self._refuse(kwargs)
        function = self.forward
        if _has_containers((args, kwargs)):
            function, args = as_given(function, args, kwargs)
            kwargs = {}
        elif not SETTINGS.isdisjoint(kwargs):
            function, kwargs = functools.partial(function, **kwargs), {}
        return checkpoint(function, *args, **self._settings, **kwargs)

    def leave_generators(self) -> None:
        """Restore no generators: under fake tensors none is drawn from, and none can be set.

        A tensor stands for each state that would be kept.
        """
        if self._settings["preserve_rng_state"]:
            own = self._settings.get("context_fn")
            self._settings["preserve_rng_state"] = False
            self._settings["context_fn"] = both(standing_states, own) if own else standing_states

    def put(self, module: nn.Module) -> None:
        """Take the place of the module's forward."""
        module.__dict__["forward"] = self

    def remove(self, module: nn.Module) -> None:
        """Give the module its forward back."""
        if self._own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = self._own

    def _refuse(self, kwargs: Mapping[str, Any]) -> None:
        for each in _CACHES:
            if kwargs.get(each) is not None:
                raise InvalidRequestError(
                    f"{self.name} would write to the cache {each} twice, in the forward and in its "
                    "recomputation; call the model with use_cache=False",
                    field=each,
                )
        if self._selective and not torch.compiler.is_compiling() and _is_inside_checkpoint():
            raise NotSupportedError(
                f"{self.name} is selective and runs inside another checkpoint, where PyTorch keeps "
                "what both save; call it outside of that checkpoint, or plan without selective "
                "options"
            )


class _AsGiven(functools.partial[Any]):
    """A call that has its lists and dicts as they were, whatever became of them since.

    A model that appends each block's result to the list that it gives to the next would otherwise
    give all of it to a block that runs again. The first run has the model's own, to which the block
    may write; what ``checkpoint`` is given beside, for devices of tensors, is not looked at.
    """

    own: Callable[[], Any]

    def __call__(self, *_: Any) -> Any:
        """Run it; ``own`` is there for the first run alone."""
        if "own" in self.__dict__:
            return self.__dict__.pop("own")()
        args, kwargs = _copied((self.args, self.keywords))
        return self.func(*args, **kwargs)


def as_given(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[_AsGiven, tuple[torch.Tensor, ...]]:
    """Make such a call, and name its tensors, whose devices have random states to be kept."""
    then, named = _copied((args, kwargs))
    call = _AsGiven(forward, *then, **named)
    call.own = functools.partial(forward, *args, **kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    return call, tuple(each for each in leaves if isinstance(each, torch.Tensor))


def _copied(given: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf, given)


def _has_containers(given: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
    args, kwargs = given
    return any(isinstance(each, _CONTAINERS) for each in (*args, *kwargs.values()))


def both(outer: ContextFn, inner: ContextFn) -> ContextFn:
    """Make one ``context_fn`` of two."""

    def context_fn() -> _Contexts:
        forwards, recomputations = zip(outer(), inner(), strict=True)
        return _Nested(*forwards), _Nested(*recomputations)

    return context_fn


class _Nested(contextlib.AbstractContextManager[None]):
    """Two contexts in one, to be entered as often as they can be."""

    def __init__(self, *contexts: contextlib.AbstractContextManager[Any]) -> None:
        self._contexts = contexts
        self._open: list[contextlib.ExitStack] = []

    def __enter__(self) -> None:
        with contextlib.ExitStack() as stack:
            for each in self._contexts:
                stack.enter_context(each)
            self._open.append(stack.pop_all())

    def __exit__(self, *raised: Any) -> bool | None:
        return self._open.pop().__exit__(*raised)


def _is_inside_checkpoint() -> bool:
    # PyTorch has no question for this: a checkpoint that is open has its hooks on top.
    core: Any = torch._C
    hooks = core._autograd._top_saved_tensors_default_hooks(False)
    return bool(hooks) and hooks[0].__module__ == "torch.utils.checkpoint"


def caching_configs(model: nn.Module) -> Iterator[Any]:
    """Find the configurations by which a model of transformers keeps a cache in its forward."""
    seen: set[int] = set()
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", None) is True and id(config) not in seen:
            seen.add(id(config))
            yield config
