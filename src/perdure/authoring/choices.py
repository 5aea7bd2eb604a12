"""`options(fetch, max_attempts=5)(url)`: how calls of an auto workflow are retried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from perdure.authoring.options import CallOptions, StepOptions, checked
from perdure.errors import BadDefinition

P = ParamSpec("P")
R = TypeVar("R")


def auto_settings(chosen: Mapping[str, Any]) -> StepOptions:
    """Options of recorded calls, checked. Raises `TypeError` for one that a recorded call has not."""
    unknown = chosen.keys() - CallOptions.__annotations__.keys()
    if unknown:
        raise TypeError(
            f"a recorded call has no option {min(unknown)!r}. Known: {', '.join(CallOptions.__annotations__)}."
        )
    return checked(StepOptions(), chosen)


class Chosen(Generic[P, R]):
    """A function with options of its own."""

    def __init__(self, function: Callable[P, R], settings: StepOptions) -> None:
        self.function = function
        self.settings = settings

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


def options(function: Callable[P, R], /, **chosen: Unpack[CallOptions]) -> Callable[P, R]:
    """The same function with other options, for one call in an auto workflow. Anywhere else it is just called.

    >>> page = options(fetch, max_attempts=5, timeout="10 s")(url)
    """
    if not callable(function):
        raise BadDefinition(f"options needs the function to call, not {type(function).__name__}: options(fetch)(url).")
    choices: Any = chosen
    return Chosen(function, auto_settings(choices))
