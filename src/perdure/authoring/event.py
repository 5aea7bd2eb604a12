"""`@event`: a type that runs can receive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from perdure.authoring.inspect import place_of
from perdure.authoring.registry import check_name, registry
from perdure.errors import BadDefinition, UnstorableType
from perdure.kernel.codec import codec_for, why_not_storable
from perdure.kernel.definitions import EventSpec

T = TypeVar("T", bound=type)


@overload
def event(cls: T, /) -> T: ...
@overload
def event(*, name: str | None = None) -> Callable[[T], T]: ...
def event(cls: Any = None, /, *, name: str | None = None) -> Any:
    """Make a class an event: instances can be sent to runs, and received by them.

    The class is otherwise unchanged. It must be storable: a dataclass, msgspec Struct, attrs or pydantic class...

    >>> @event
    ... @dataclass
    ... class Approved:
    ...     by: str
    """

    def decorate(target: Any) -> Any:
        if not isinstance(target, type):
            raise BadDefinition(f"@event decorates a class, not {type(target).__name__}.")
        place = place_of(target)
        reason = why_not_storable(target)
        if reason is not None:
            raise UnstorableType(
                f"event {target.__qualname__} cannot be stored: {reason} ({place}). Make it a dataclass of plain data."
            )
        spec = EventSpec(name=check_name(name or target.__name__, "an event"), type=target, codec=codec_for(target))
        registry.add_event(spec, place)
        target.__perdure_event__ = spec  # type: ignore[attr-defined]
        return target

    return decorate if cls is None else decorate(cls)
