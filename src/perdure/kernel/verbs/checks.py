"""What is given to a verb is checked here, before anything depends on it."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from perdure import limits
from perdure.errors import BadArgument, written_out
from perdure.given import an_instance, class_name, qualified_name, shown, text_of, whole_of
from perdure.kernel.definitions import EventSpec

#: What a class has itself, whatever its metaclass says.
_OWN_NAMES: Any = type.__dict__["__dict__"].__get__


def event_spec(type_: type) -> EventSpec:
    """The registration of an event class."""
    spec = _OWN_NAMES(type_).get("__perdure_event__") if an_instance(type_, type) else None
    if spec is None:
        name = qualified_name(type_) if an_instance(type_, type) else shown(type_)
        raise BadArgument(f"{name} is not an event. Decorate its class with @event.")
    return spec  # type: ignore[no-any-return]


def check_match(match: object) -> None:
    if match is not None and not callable(match):
        raise BadArgument(f"match is a function that takes an event and says whether to take it, not {shown(match)}.")


_CONTROL = r"[\x00-\x1f\x7f]"


def check_run_id(run_id: str, *, allow_children: bool = False) -> str:
    """Refuse ids that could not be stored, shown or told apart."""
    rule = f"A run id is 1 to {limits.RUN_ID_BYTES_MAX} bytes of text without control characters or outer spaces"
    if type(run_id) is not str:
        given, run_id = run_id, text_of(run_id) or ""
        if not an_instance(given, str):
            raise BadArgument(f"a run id is text, not {class_name(type(given))}. {rule}.")
    if not run_id or run_id != run_id.strip() or run_id in {".", ".."}:
        raise BadArgument(f"{run_id!r} cannot be a run id. {rule}.")
    if re.search(_CONTROL, run_id):
        raise BadArgument(f"{run_id!r} holds a control character. {rule}.")
    try:
        size = len(run_id.encode())
    except UnicodeEncodeError:
        raise BadArgument(f"{run_id!r} holds half a character (a lone surrogate). {rule}.") from None
    if size > limits.RUN_ID_BYTES_MAX:
        raise BadArgument(f"this run id is {size} bytes long ({run_id[:40]!r}...). {rule}.")
    if "/" in run_id and not allow_children:
        raise BadArgument(f"{run_id!r} cannot be a run id: '/' marks the children of a run. {rule}.")
    return run_id


def check_key(key: str | None) -> str | None:
    """The key by which an event is told from its repeats."""
    if key is None:
        return None
    text = text_of(key)
    if text is None or not 0 < len(text) <= limits.RUN_ID_BYTES_MAX or "\0" in text:
        raise BadArgument(f"key is 1 to {limits.RUN_ID_BYTES_MAX} characters of text without NUL, not {shown(key)}.")
    return check_text(text, "key")


N = TypeVar("N", str, "str | None")


def check_text(text: N, what: str) -> N:
    """Refuse what no store can hold: the half of a character, which UTF-8 cannot carry. None passes."""
    if text is None:
        return text
    exact: Any = text_of(text)
    if exact is None:
        raise BadArgument(f"{what} is text, not {class_name(type(text))}.")
    try:
        exact.encode()
    except UnicodeEncodeError:
        raise BadArgument(f"{what} holds half a character (a lone surrogate): {shown(exact)}.") from None
    return exact  # type: ignore[no-any-return]


def check_operation_name(name: str) -> str:
    """The `name=` of a verb: it becomes part of a location, so it is text that can be stored."""
    return name if type(name) is str and name.isascii() else check_text(name, "the name of an operation")


def check_flag(value: bool, what: str) -> bool:
    """True or False, and nothing that only looks like it: it goes into records."""
    if type(value) is not bool:
        raise BadArgument(f"{what} is True or False, not {shown(value)}.")
    return value


def check_whole(value: int, what: str, minimum: int, maximum: int) -> int:
    """A whole number within bounds, exactly."""
    exact = whole_of(value)
    if exact is None or not minimum <= exact <= maximum:
        raise BadArgument(f"{what} is a whole number between {minimum} and {maximum}, not {shown(value)}.")
    return exact


def check_reason(reason: str) -> str:
    """Why somebody ends or pauses a run: a line for people, in a form that can be stored."""
    text = text_of(reason)
    if text is None or len(text) > limits.ERROR_MESSAGE_CHARS_MAX:
        raise BadArgument(
            f"a reason is text of at most {limits.ERROR_MESSAGE_CHARS_MAX} characters, not {shown(reason)}."
        )
    return written_out(text)
