"""`@event`: a type that runs can receive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypeVar, get_args, overload

from perdure.authoring.inspect import defined, place_of
from perdure.authoring.registry import check_name, registry
from perdure.errors import BadArgument, BadDefinition, UnstorableType
from perdure.given import an_instance, class_name, qualified_name, shown, text_of
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy, EventSpec
from perdure.kernel.values import codec_for, why_not_storable
from perdure.kernel.verbs.durations import seconds_of

T = TypeVar("T", bound=type)

Delivery: TypeAlias = Literal["after_create", "after_wait", "all", "first"]
Undelivered: TypeAlias = Literal["dead_letter", "broadcast", "discard"]


@overload
def event(cls: T, /) -> T: ...
@overload
def event(
    *,
    name: str | None = None,
    delivery: Delivery = "after_create",
    consume: bool = True,
    expires: float | timedelta | str | None = None,
    undelivered: Undelivered = "dead_letter",
) -> Callable[[T], T]: ...
def event(
    cls: Any = None,
    /,
    *,
    name: str | None = None,
    delivery: Delivery = "after_create",
    consume: bool = True,
    expires: float | timedelta | str | None = None,
    undelivered: Undelivered = "dead_letter",
) -> Any:
    """Make a class an event: instances can be sent to runs or published, and received by runs.

    The class is otherwise unchanged. It must be storable: a dataclass, msgspec Struct, attrs or pydantic class...

    `delivery`: who may see a published one: runs created before it, runs that already wait, any run, or only the
    first. `consume`: its first reader takes it, or (False) every eligible run reads it once. `expires`: after this
    long nobody gets it any more. `undelivered`: what becomes of one that was sent to a run which ended unread.

    >>> @event
    ... @dataclass
    ... class Approved:
    ...     by: str
    """

    policy = _policy(delivery, consume, expires, undelivered)

    def decorate(target: Any) -> Any:
        if not an_instance(target, type):
            raise BadDefinition(f"@event decorates a class, not {class_name(type(target))}.")
        place = place_of(target)
        reason = why_not_storable(target)
        if reason is not None:
            raise UnstorableType(
                f"event {qualified_name(target)} cannot be stored: {reason} ({place}). "
                "Make it a dataclass of plain data."
            )
        spec = EventSpec(
            name=check_name(class_name(target) if name is None else name, "an event"),
            type=target,
            codec=codec_for(target),
            policy=policy,
        )
        registry.add_event(spec, place)
        target.__perdure_event__ = spec
        return target

    def looked_at(target: Any) -> Any:
        return defined("what @event decorates", lambda: decorate(target))

    return looked_at if cls is None else looked_at(cls)


def _policy(delivery: Any, consume: Any, expires: Any, undelivered: Any) -> EventPolicy:
    """The options, checked. Raises `BadDefinition`."""
    for name, value, known in (
        ("delivery", delivery, get_args(Delivery)),
        ("undelivered", undelivered, get_args(Undelivered)),
    ):
        if text_of(value) not in known:
            raise BadDefinition(f"@event({name}=...) is {' or '.join(map(repr, known))}, not {shown(value)}.")
    if type(consume) is not bool:
        raise BadDefinition(f"@event(consume=...) is True or False, not {shown(consume)}.")
    microseconds = None
    if expires is not None:
        try:
            microseconds = round(seconds_of(expires, "@event(expires=...)") * 1_000_000)
        except BadArgument as error:
            raise BadDefinition(error.message) from None
        if microseconds <= 0:
            raise BadDefinition(f"@event(expires=...) must be more than zero, and {shown(expires)} is not.")
    policy = EventPolicy(_exactly(delivery), consume, microseconds, _exactly(undelivered))
    return DEFAULT_POLICY if policy == DEFAULT_POLICY else policy


def _exactly(choice: Any) -> Any:
    return text_of(choice)
