"""Exceptions as records, and back.

`encode_error` never raises, whatever the exception's own methods do, and what it makes is bounded: long texts
lose their middle, long chains and big groups their tail, and `Fault.cut` says so. `decode_error` never raises
either. It rebuilds the class only if this process has already imported it, and never runs a user's
`__init__`: the recorded arguments and attributes are the state. What cannot be rebuilt is a
`StepFailed` that carries the original type name. Live code gets the decoded error too (law 9).

Tracebacks are written without source lines: reading them is I/O, and the file may have changed since.
"""

from __future__ import annotations

import builtins
import contextlib
import re
import sys
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, Final

import msgspec
from msgspec import Raw

from perdure import limits
from perdure.errors import StepFailed, one_line
from perdure.given import an_instance, mro_of
from perdure.kernel.journal import ABSENT, Fault
from perdure.kernel.values.tagged import Walker

#: Arguments and attributes of all exceptions in one record. Enough for what people put into errors; a payload
#: belongs in a result.
VALUES_BYTES_MAX: Final = 64 * 1024
#: Messages, notes and tracebacks of all exceptions in one record.
TEXT_CHARS_MAX: Final = 128 * 1024
#: Exceptions in one record: groups of groups with causes would multiply.
FAULTS_MAX: Final = 256
#: Notes of one exception.
NOTES_MAX: Final = 32

#: Where the remote traceback is kept on a rebuilt exception. Not a note: notes are the user's.
TRACEBACK_ATTRIBUTE: Final = "__perdure_traceback__"
#: How often a step was tried before it failed with this exception.
ATTEMPTS_ATTRIBUTE: Final = "__perdure_attempts__"
#: In the globals of frames that were made from a recorded traceback (`engine.frames`): its text is there already.
RECORDED_FRAME: Final = "__perdure_recorded__"
_NOT_ATTRIBUTES: Final = frozenset({"__notes__", TRACEBACK_ATTRIBUTE, ATTEMPTS_ATTRIBUTE})

#: State that built-in classes keep outside `args` and `__dict__`.
_EXTRA: Final[tuple[tuple[type[BaseException], tuple[str, ...]], ...]] = (
    (ImportError, ("name", "path")),
    (NameError, ("name",)),
    (AttributeError, ("name",)),
)

#: What a class has itself, whatever its metaclass says.
_OWN_NAMES: Final[Any] = type.__dict__["__dict__"].__get__

_UNREADABLE: Final = "<its message could not be read>"

_walker = Walker()
_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder[Any]().decode


# -- encoding --------------------------------------------------------------------------------------------


class _Budget:
    """What is left to spend on one record."""

    def __init__(self) -> None:
        self.faults = FAULTS_MAX
        self.bytes = VALUES_BYTES_MAX
        self.chars = TEXT_CHARS_MAX

    def text(self, text: str, chars_max: int) -> tuple[str, bool]:
        """`text`, its middle cut out if needed, and whether it was."""
        # Lone surrogates cannot be written as UTF-8; a message is for reading, so escapes will do.
        text = text.encode("utf-8", "backslashreplace").decode()
        chars_max = min(chars_max, max(self.chars, 80))
        cut = len(text) > chars_max
        if cut:
            text = f"{text[: chars_max // 2]}\n[... cut ...]\n{text[-(chars_max // 2) :]}"
        self.chars -= len(text)
        return text, cut

    def values(self, value: Any) -> Raw | None:
        """Tagged JSON of `value`, or None if it cannot be stored or costs too much."""
        try:
            data = _encode_json(_walker.plain(value))
        except Exception:
            return None
        if len(data) > self.bytes:
            return None
        self.bytes -= len(data)
        return Raw(data)


def encode_error(error: BaseException) -> Fault:
    """A bounded record of `error`, its notes, causes and group members. Never raises."""
    try:
        return _encode(error, _Budget(), limits.CAUSE_CHAIN_MAX, limits.GROUP_DEPTH_MAX)
    except Exception:
        return Fault(type=_type_name(error), message=_UNREADABLE, cut=True)


def tame(error: BaseException) -> BaseException:
    """The error, or one in its place if asking it what it is would run code of its class, which may raise."""
    for cls in mro_of(type(error)):
        if cls is BaseException:
            break
        own = _OWN_NAMES(cls)
        if "__class__" in own or "__getattribute__" in own:
            return _stand_in(encode_error(error))
    return error


def _encode(error: BaseException, budget: _Budget, chain_left: int, depth_left: int) -> Fault:
    budget.faults -= 1
    message, message_cut = budget.text(_safely(lambda: str(error), _UNREADABLE), limits.ERROR_MESSAGE_CHARS_MAX)
    traceback, _ = budget.text(_traceback(error), limits.TRACEBACK_CHARS_MAX)
    notes, notes_cut = _notes(error, budget)
    args = budget.values(_arguments(error))
    attributes, attributes_cut = _attributes(error, budget)
    cause, cause_is_context = _cause(error)
    keep_cause = cause is not None and chain_left > 0 and budget.faults > 0
    members, members_cut = _members(error, budget, depth_left)
    return Fault(
        type=_type_name(error),
        message=message,
        args=args or ABSENT,
        attributes=attributes or ABSENT,
        notes=notes,
        cause=_encode(cause, budget, chain_left - 1, depth_left) if cause is not None and keep_cause else None,
        cause_is_context=keep_cause and cause_is_context,
        suppress_context=_safely(lambda: bool(error.__suppress_context__), False),
        members=members,
        traceback=traceback,
        cut=message_cut
        or notes_cut
        or not args
        or attributes_cut
        or members_cut
        or (cause is not None and not keep_cause),
    )


def _safely(read: Callable[[], Any], otherwise: Any) -> Any:
    """What `read` returns, or `otherwise` if it raises: a `__str__` can do anything."""
    try:
        value = read()
        if isinstance(otherwise, str):
            return str.__str__(value)  # an exact str, even from a subclass with methods of its own
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return otherwise
    return value


def _type_name(error: BaseException) -> str:
    cls = type(error)
    name = f"{_safely(lambda: cls.__module__, '?')}:{_safely(lambda: cls.__qualname__, '?')}"
    return name.encode("utf-8", "backslashreplace").decode()


def _arguments(error: Any) -> list[Any]:
    """What the class is rebuilt with."""
    if an_instance(error, BaseExceptionGroup):
        return [BaseExceptionGroup.message.__get__(error)]
    if an_instance(error, OSError):
        # `args` of an OSError has no file names; what it gives to pickle has.
        reduced: Any = _safely(lambda: OSError.__reduce__(error), None)
        if isinstance(reduced, tuple) and isinstance(reduced[1], tuple):
            return list(reduced[1])
    return list(_safely(lambda: BaseException.args.__get__(error), ()))  # type: ignore[attr-defined]


def _attributes(error: BaseException, budget: _Budget) -> tuple[Raw | None, bool]:
    """Those attributes that can be stored, and whether some could not."""
    found: dict[Any, Any] = dict(_safely(lambda: vars(error), {}))
    for cls, names in _EXTRA:
        if an_instance(error, cls):
            found.update({name: value for name in names if (value := getattr(error, name, None)) is not None})
    kept: dict[str, Any] = {}
    cut = False
    for name, value in found.items():
        if type(name) is not str or name in _NOT_ATTRIBUTES:
            continue
        # Each is tried alone, so that one bad attribute does not take the others with it.
        if budget.values({name: value}) is None:
            cut = True
        else:
            kept[name] = value
    return (Raw(_encode_json(_walker.plain(kept))) if kept else None), cut


def _notes(error: BaseException, budget: _Budget) -> tuple[tuple[str, ...], bool]:
    notes: Any = _safely(lambda: list(getattr(error, "__notes__", ())), [])
    texts = [note for note in notes if isinstance(note, str)]
    kept = [budget.text(str.__str__(note), limits.ERROR_MESSAGE_CHARS_MAX) for note in texts[:NOTES_MAX]]
    return tuple(text for text, _ in kept), len(texts) > NOTES_MAX or any(cut for _, cut in kept)


def _cause(error: BaseException) -> tuple[BaseException | None, bool]:
    """What is printed above an exception, and whether it is its context."""
    if error.__cause__ is not None:
        return error.__cause__, False
    if error.__context__ is not None and not error.__suppress_context__:
        return error.__context__, True
    return None, False


def _members(error: Any, budget: _Budget, depth_left: int) -> tuple[tuple[Fault, ...], bool]:
    if not an_instance(error, BaseExceptionGroup):
        return (), False
    if depth_left <= 0:
        return (), True
    kept: list[Fault] = []
    exceptions: tuple[BaseException, ...] = BaseExceptionGroup.exceptions.__get__(error)
    for member in exceptions[: limits.GROUP_MEMBERS_MAX]:
        if budget.faults <= 0:
            break
        kept.append(_encode(member, budget, limits.CAUSE_CHAIN_MAX, depth_left - 1))
    return tuple(kept), len(kept) < len(exceptions)


# -- tracebacks ------------------------------------------------------------------------------------------


_LIBRARY: Final = contextlib.__file__.rpartition("contextlib")[0]
#: Frames that say nothing to the author of a step.
_MACHINERY: Final = (
    __file__.rpartition("kernel")[0],
    *(_LIBRARY + name for name in ("asyncio", "concurrent", "threading.py")),
)
_FRAMES_MAX: Final = 60
#: Lines that a summary names.
_PLACES_MAX: Final = 5
#: Name of the file and number of the line, in the text of a traceback.
PLACE: Final = re.compile(r'  File "(?:.*[/\\])?([^/\\"\n]+)", line (\d+), in ')
_LEFT_OUT: Final = "  [... {} more frames ...]"


def raised_at(error: BaseException) -> str:
    """`orders.py:12`: the innermost line of the user's that an exception passed, or "" if there is none."""
    own = [frame for frame in _frames(error.__traceback__) if not frame[0].startswith(_MACHINERY)]
    return f"{own[-1][0].replace(chr(92), '/').rpartition('/')[2]}:{own[-1][1]}" if own else ""


def summary(error: BaseException) -> str:
    """One line about an exception: its class, the first line of its message, and the lines of the user's that it
    passed, the one that raised last. Never raises.

    >>> summary(error)
    'ValueError: no such card (orders.py:41, cards.py:12)'
    """
    message = one_line(_safely(lambda: str(error), _UNREADABLE)).encode("utf-8", "backslashreplace").decode()
    name = _type_name(error).partition(":")[2]
    places = [f"{file}:{line}" for file, line in PLACE.findall("\n".join(_lines(error)))][-_PLACES_MAX:]
    return f"{name}: {message}"[: None if message else -2] + (f" ({', '.join(places)})" if places else "")


def _traceback(error: BaseException) -> str:
    return "\n".join(_fitting(_lines(error) or [_line(*frame) for frame in _frames(error.__traceback__)]))


def _lines(error: BaseException) -> list[str]:
    """The user's, as plain Python would show them: the workflow's first, then those of the step that it called."""
    earlier: str = _safely(lambda: vars(error).get(TRACEBACK_ATTRIBUTE, ""), "")
    own = [_line(*frame) for frame in _frames(error.__traceback__) if not frame[0].startswith(_MACHINERY)]
    return [*own, *earlier.split("\n")] if earlier else own


def _line(file: str, line: int, name: str) -> str:
    return f'  File "{file}", line {line}, in {name}'


def _fitting(lines: list[str]) -> list[str]:
    """Whole lines from both ends: at most `_FRAMES_MAX` of them, and as many as `TRACEBACK_CHARS_MAX` has room for.
    Paths differ in length: a cut by characters alone goes through the middle of a line (tests/values/test_errors.py).
    """
    if len(lines) <= _FRAMES_MAX and sum(map(len, lines)) + len(lines) <= limits.TRACEBACK_CHARS_MAX:
        return lines
    room = limits.TRACEBACK_CHARS_MAX - len(_LEFT_OUT.format(len(lines))) - 1
    first = last = 0
    while first + last < min(len(lines), _FRAMES_MAX):
        at_end = last <= first  # the line that raised is the last one: it is kept before any other
        room -= len(lines[-1 - last] if at_end else lines[first]) + 1
        if room < 0:
            break
        first, last = (first, last + 1) if at_end else (first + 1, last)
    left_out = _LEFT_OUT.format(len(lines) - first - last)
    return [*lines[:first], left_out, *lines[len(lines) - last :]]


def _frames(traceback: TracebackType | None) -> list[tuple[str, int, str]]:
    frames: list[tuple[str, int, str]] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if RECORDED_FRAME not in traceback.tb_frame.f_globals:
            frames.append((code.co_filename, traceback.tb_lineno, code.co_qualname))
        traceback = traceback.tb_next
    return frames


# -- decoding --------------------------------------------------------------------------------------------


def decode_error(fault: Fault) -> BaseException:
    """The recorded exception, or a `StepFailed` in its place. Never raises."""
    error = _decode(fault)
    if an_instance(error, StopIteration):
        # No future takes a StopIteration and no coroutine lets one out: Python makes it a RuntimeError
        # (PEP 479), and so do we, or it would end the workflow silently (FAULTS D38).
        wrapped = RuntimeError("a step raised StopIteration")
        wrapped.__cause__ = error
        return wrapped
    return error


def with_attempts(error: BaseException, attempts: int) -> BaseException:
    """The same error, knowing how often its step was tried."""
    BaseException.__dict__["__dict__"].__get__(error)[ATTEMPTS_ATTRIBUTE] = attempts
    return error


def is_recorded(error: BaseException) -> bool:
    """Whether a step raised this, rather than the code that has it now."""
    return ATTEMPTS_ATTRIBUTE in BaseException.__dict__["__dict__"].__get__(error)


def attempts_of(error: BaseException) -> int:
    """How often the step that raised this was tried; 1 for an error that no step raised."""
    return int(_safely(lambda: vars(error).get(ATTEMPTS_ATTRIBUTE, 1), 1))


def _decode(fault: Fault) -> BaseException:
    members = [_decode(member) for member in fault.members]
    try:
        error = _rebuild(fault, members)
    except Exception:
        error = None
    if error is None:
        error = _stand_in(fault)
    _finish(error, fault)
    return error


def _stand_in(fault: Fault) -> StepFailed:
    name = fault.type.rpartition(":")[2]
    text = f"{name}: {fault.message}" if fault.message else name
    return StepFailed(text, type_name=fault.type, original_message=fault.message)


def _finish(error: BaseException, fault: Fault) -> None:
    """Notes, causes and the traceback, set below any property or `__setattr__` of the class."""
    state = BaseException.__dict__
    cause = _decode(fault.cause) if fault.cause is not None else None
    if cause is not None:
        state["__context__" if fault.cause_is_context else "__cause__"].__set__(error, cause)
    state["__suppress_context__"].__set__(error, fault.suppress_context)
    own: dict[str, Any] = state["__dict__"].__get__(error)
    if fault.notes:
        own["__notes__"] = list(fault.notes)
    own[TRACEBACK_ATTRIBUTE] = fault.traceback


def _imported_class(name: str) -> type[BaseException] | None:
    """The exception class `module:Qualified.Name`, if it is there already. Nothing is imported.

    `vars` and not `getattr`: a module's `__getattr__` may import.
    """
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        if not isinstance(found, (ModuleType, type)):
            return None
        found = vars(found).get(part)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _value(raw: Raw) -> Any:
    return _walker.value(_decode_json(raw))


def _rebuild(fault: Fault, members: list[BaseException]) -> BaseException | None:
    cls = _imported_class(fault.type)
    if cls is None:
        return None
    args: tuple[Any, ...] = tuple(_value(fault.args)) if fault.args else (fault.message,)
    if issubclass(cls, BaseExceptionGroup):
        args = (args[0], members)
    error = cls(*args) if _is_builtin(cls) else _without_init(cls, args)
    if type(error) is not cls:
        return None
    for name, value in (_value(fault.attributes) if fault.attributes else {}).items():
        _set(error, name, value)
    # Without its arguments the error is usable only if it can at least say what it is.
    if not fault.args and _safely(lambda: str(error), "\0") == "\0":
        return None
    return error


def _is_builtin(cls: type) -> bool:
    return vars(builtins).get(cls.__name__) is cls


def _without_init(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    base: Any = next(parent for parent in cls.__mro__ if _is_builtin(parent))
    try:
        error: Any = cls.__new__(cls, *args)
    except Exception:  # a `__new__` with other parameters
        error = base.__new__(cls, *args)
    if not issubclass(cls, BaseExceptionGroup):
        with contextlib.suppress(Exception):
            base.__init__(error, *args)  # errno, code, value...: state that only the built-in __init__ sets
        if not issubclass(cls, OSError):  # there the built-in sets `args` without the file names
            BaseException.__dict__["args"].__set__(error, args)
    return error  # type: ignore[no-any-return]


def _set(error: BaseException, name: str, value: Any) -> None:
    builtin = any(an_instance(error, cls) and name in names for cls, names in _EXTRA)
    if builtin:
        setattr(error, name, value)
    else:
        BaseException.__dict__["__dict__"].__get__(error)[name] = value
