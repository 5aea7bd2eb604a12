"""Recorded exceptions are raised again as what they were, live and on replay alike."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import sys
import types
from typing import Any

import msgspec
import pytest

from perdure import limits
from perdure.errors import NonRetryable, RetryAfter, StepFailed, StepTimeout
from perdure.kernel.journal import Fault
from perdure.kernel.values.faults import TEXT_CHARS_MAX, VALUES_BYTES_MAX, decode_error, encode_error


class Declined(Exception):
    """Needs keywords, and says something its arguments do not."""

    def __init__(self, *, code: int, hint: str) -> None:
        super().__init__(f"declined with {code}")
        self.code = code
        self.hint = hint


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Worse(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NotText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Disk(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOSPC, "disk full", path)


class Own(BaseExceptionGroup[Any]):
    def __new__(cls, reason: str, errors: list[BaseException], extra: int) -> Own:
        self = super().__new__(cls, reason, errors)
        self.extra = extra
        return self

    def __init__(self, reason: str, errors: list[BaseException], extra: int) -> None: ...


class Picky(Exception):
    def __new__(cls, *, needed: int) -> Picky:
        return super().__new__(cls)

    def __init__(self, *, needed: int) -> None:
        super().__init__("picky", needed)


class Holding(Exception):
    def __init__(self, thing: object) -> None:
        super().__init__(thing)
        self.status = 404
        self.thing = thing


class Dependent(Exception):
    def __str__(self) -> str:
        return f"on {self.args[0].family}"


def crossed(error: BaseException) -> BaseException:
    """`error` after its journey through a record, as bytes."""
    data = msgspec.json.encode(encode_error(error))
    return decode_error(msgspec.json.decode(data, type=Fault))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad", 1, (2, {3})),
        ValueError(),
        KeyError("k"),
        KeyError((1, 2)),
        OSError("plain"),
        OSError(errno.ENOENT, "gone", "/a"),
        OSError(errno.EXDEV, "cross", "/a", None, "/b"),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
        UnicodeEncodeError("ascii", "\ud800", 0, 1, "bad char"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError("why"),
        TimeoutError("late"),
        StopAsyncIteration(1),
        ImportError("no", name="mod", path="/p"),
        NameError("no", name="x"),
        SyntaxError("bad", ("f.py", 1, 2, "x =", 1, 3)),
        MemoryError(),
        RecursionError("deep"),
        Declined(code=7, hint="call"),
        Disk("/full"),
        Picky(needed=1),
        NonRetryable("stop"),
        RetryAfter(2.5),
        StepTimeout("late"),
        StepFailed("m", "t", "o"),
        json.JSONDecodeError("bad", "{", 1),
        ValueError("lone \ud800 surrogate \0"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_class_arguments_and_attributes_survive(error: BaseException) -> None:
    """CONFORMANCE R4: the same type, arguments and state; no user `__init__` runs."""
    back = crossed(error)
    assert type(back) is type(error)
    assert back.args == error.args
    assert str(back) == str(error)
    own = {key: value for key, value in vars(back).items() if key != "__perdure_traceback__"}
    assert own == vars(error)
    for name in (
        "errno",
        "strerror",
        "filename",
        "filename2",
        "code",
        "value",
        "name",
        "path",
        "start",
        "object",
    ):
        assert getattr(back, name, None) == getattr(error, name, None)


@pytest.mark.parametrize("cls", [Rude, Worse, NotText])
def test_errors_that_cannot_print_themselves(cls: type[Exception]) -> None:
    """FAULTS D27: recorded with a safe text, rebuilt as the same class."""
    fault = encode_error(cls("a"))
    assert fault.message == "<its message could not be read>"
    back = decode_error(fault)
    assert type(back) is cls
    assert back.args == ("a",)


def test_a_class_that_is_gone_is_a_step_failed() -> None:
    """FAULTS D28: never imported by name; the original type is named."""
    module = types.ModuleType("values_gone_module")
    exec("class Gone(Exception): pass", module.__dict__)
    sys.modules[module.__name__] = module
    fault = encode_error(module.Gone("x"))
    assert type(decode_error(fault)) is module.Gone
    del sys.modules[module.__name__]
    back = decode_error(fault)
    assert isinstance(back, StepFailed)
    assert back.type_name == "values_gone_module:Gone"
    assert back.original_message == "x"
    assert back.message == "Gone: x"


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "builtins:int",
        "builtins:eval",
        "antigravity:X",
        "",
        ":",
        "a:b:c",
        "builtins:ValueError.x",
    ],
)
def test_only_exception_classes_are_made(name: str) -> None:
    """FAULTS S1: a forged record makes no other object and imports nothing."""
    modules = set(sys.modules)
    assert isinstance(decode_error(Fault(type=name, message="m")), StepFailed)
    assert set(sys.modules) == modules


def test_damaged_records_are_a_step_failed() -> None:
    for args, attributes in ((b'{"$object":["x",1]}', None), (b"[]", b"5"), (b"{", None), (b"5", None)):
        raw = msgspec.Raw(attributes or b"")
        fault = Fault(type="builtins:ValueError", message="m", args=msgspec.Raw(args), attributes=raw)
        assert isinstance(decode_error(fault), StepFailed)


def test_local_classes_are_the_same_live_and_on_replay() -> None:
    """Law 9: what a replay cannot find, live code does not get either."""

    class Local(Exception): ...

    assert isinstance(crossed(Local("x")), StepFailed)


def test_unstorable_arguments_and_attributes_are_left_out() -> None:
    with socket.socket() as thing:
        fault = encode_error(Holding(thing))
        assert fault.cut
        back: Any = decode_error(fault)
        assert type(back) is Holding
        assert back.status == 404
        assert not hasattr(back, "thing")
        assert isinstance(crossed(Dependent(thing)), StepFailed)  # it could not even print itself


def test_notes_causes_and_contexts() -> None:
    def fail() -> None:
        try:
            try:
                raise KeyError("inner")
            except KeyError as inner:
                raise ValueError("middle") from inner
        except ValueError:
            error = TypeError("outer")
            error.add_note("first")
            error.add_note("second")
            raise error  # noqa: B904

    with pytest.raises(TypeError) as caught:
        fail()
    back = crossed(caught.value)
    assert back.__notes__ == ["first", "second"]
    assert back.__cause__ is None
    assert isinstance(back.__context__, ValueError)
    assert not back.__suppress_context__
    assert isinstance(back.__context__.__cause__, KeyError)
    assert back.__context__.__suppress_context__


def test_a_suppressed_context_stays_hidden() -> None:
    try:
        try:
            raise KeyError
        except KeyError:
            raise ValueError from None
    except ValueError as error:
        back = crossed(error)
    assert back.__context__ is None
    assert back.__suppress_context__


def test_a_chain_of_a_thousand_is_cut_and_marked() -> None:
    """The record stays small, and says that something is left out. FAULTS E16."""
    error = ValueError(0)
    for number in range(1, 1000):
        outer = ValueError(number)
        outer.__cause__ = error
        error = outer
    fault, length = encode_error(error), 0
    last = fault
    while last.cause is not None:
        last, length = last.cause, length + 1
    assert length == limits.CAUSE_CHAIN_MAX
    assert last.cut
    assert not fault.cut
    loop = ValueError("loop")
    loop.__context__ = KeyError()
    loop.__context__.__context__ = loop
    assert isinstance(crossed(loop).__context__, KeyError)


def test_groups_keep_their_members() -> None:
    error = ExceptionGroup(
        "outer", [ValueError(1), ExceptionGroup("inner", [KeyError("k"), Declined(code=1, hint="h")])]
    )
    back = crossed(error)
    assert isinstance(back, ExceptionGroup)
    assert back.message == "outer"
    assert str(back) == str(error)
    matched, _ = back.split(Declined)
    assert matched is not None
    mixed = crossed(BaseExceptionGroup("b", [KeyboardInterrupt(), ValueError()]))
    assert type(mixed) is BaseExceptionGroup
    own: Any = crossed(Own("why", [ValueError("v")], 5))
    assert type(own) is Own
    assert own.extra == 5
    assert own.message == "why"


def test_big_groups_are_bounded() -> None:
    wide = encode_error(ExceptionGroup("wide", [ValueError(number) for number in range(1000)]))
    assert len(wide.members) == limits.GROUP_MEMBERS_MAX
    assert wide.cut
    deep: Exception = ValueError("leaf")
    for _ in range(20):
        deep = ExceptionGroup("level", [deep])
    assert isinstance(crossed(deep), ExceptionGroup)
    bush: Exception = ValueError("x" * 10_000)
    for _ in range(4):
        bush = ExceptionGroup("y" * 1000, [bush] * 40)
    assert len(msgspec.json.encode(encode_error(bush))) < 1_000_000


def test_long_texts_are_bounded() -> None:
    error = ValueError("x" * 1_000_000)
    error.add_note("n" * 1_000_000)
    error.payload = "p" * 1_000_000  # type: ignore[attr-defined]
    fault = encode_error(error)
    assert fault.cut
    assert len(fault.message) < limits.ERROR_MESSAGE_CHARS_MAX + 50
    assert len(msgspec.json.encode(fault)) < VALUES_BYTES_MAX + TEXT_CHARS_MAX
    assert isinstance(decode_error(fault), ValueError)


def test_the_traceback_is_kept_beside_the_notes() -> None:
    """Notes stay the user's; frames of perdure and asyncio are left out; recursion is shortened."""

    async def body() -> None:
        raise ValueError("x")

    try:
        asyncio.run(body())
    except ValueError as error:
        fault = encode_error(error)
    assert "body" in fault.traceback
    assert "base_events" not in fault.traceback
    back = decode_error(fault)
    assert back.__perdure_traceback__ == fault.traceback  # type: ignore[attr-defined]
    assert not hasattr(back, "__notes__")
    assert encode_error(back).traceback == fault.traceback

    def again() -> None:
        again()

    with pytest.raises(RecursionError) as caught:
        again()
    text = encode_error(caught.value).traceback
    assert "more frames" in text
    assert len(text) <= limits.TRACEBACK_CHARS_MAX


@pytest.mark.parametrize("folder_chars", [1, 100, 250, 4000])
def test_a_long_traceback_keeps_whole_lines_however_long_the_paths_are(folder_chars: int) -> None:
    """A checkout in a deep folder records the same frames, or fewer, but never half of one."""
    file = f"/{'f' * folder_chars}/é f/deep.py"
    names: dict[str, Any] = {}
    exec(compile("def dig(n):\n    return 1 // n if n == 0 else dig(n - 1)\n", file, "exec"), names)
    with pytest.raises(ZeroDivisionError) as caught:
        names["dig"](200)
    lines = encode_error(caught.value).traceback.split("\n")
    frames = [line for line in lines if line.startswith("  File")]
    left_out = [line for line in lines if line not in frames]
    assert 1 <= len(frames) <= 60
    assert left_out == [f"  [... {202 - len(frames)} more frames ...]"]
    assert lines[-1] == f'  File "{file}", line 2, in dig'
    assert all(line == lines[-1] for line in frames[1:])
    assert len("\n".join(lines)) <= limits.TRACEBACK_CHARS_MAX


def test_stop_iteration_becomes_a_runtime_error() -> None:
    """FAULTS D38: no future can carry it, and it would end a coroutine silently (PEP 479)."""
    back = crossed(StopIteration(5))
    assert type(back) is RuntimeError
    assert isinstance(back.__cause__, StopIteration)
    assert back.__cause__.value == 5


def test_crossing_twice_changes_nothing() -> None:
    """A fixed point: what a child recorded, its parent records again."""
    for error in (Declined(code=1, hint="h"), OSError(2, "x", "/f"), ExceptionGroup("g", [KeyError(1)])):
        once = encode_error(error)
        assert encode_error(decode_error(once)) == once
