"""From check functions to a list of named checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from perdure.testing.store.kit import World

F = TypeVar("F", bound=Callable[..., None])


class Check(NamedTuple):
    """One promise of a store, checked. Call it with a fresh `World`."""

    id: str
    function: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def __call__(self, world: World) -> None:
        self.function(world, *self.arguments)


def cases(values: Iterable[Any]) -> Callable[[F], F]:
    """One check for each value; a tuple is several arguments."""
    listed = [value if isinstance(value, tuple) else (value,) for value in values]

    def decorate(function: F) -> F:
        function.cases = listed  # type: ignore[attr-defined]
        return function

    return decorate


def checks_of(module: ModuleType) -> Iterator[Check]:
    """Every `check_*` function of a module, in the order of the file."""
    area = module.__name__.rpartition(".")[2]
    for name, function in vars(module).items():
        if not name.startswith("check_"):
            continue
        promise = f"{area}-{name.removeprefix('check_')}"
        listed = getattr(function, "cases", None)
        if listed is None:
            yield Check(promise, function)
        else:
            for arguments in listed:
                yield Check(f"{promise}[{'-'.join(_label(each) for each in arguments)}]", function, arguments)


def _label(value: Any) -> str:
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return str(name) if name is not None else ascii(value).strip("'")[:40]
