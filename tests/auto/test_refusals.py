"""What auto mode cannot make durable is refused where it is written, with file, line and the way out."""

from __future__ import annotations

import functools
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import RunFailed, options, workflow
from perdure.errors import BadDefinition, LostChange, NotRewritable, UnstorableType
from perdure.testing import VirtualEngine
from support.lives import run_async

counted = 0


def line_of(function: Callable[..., Any], offset: int) -> str:
    return f"{Path(__file__).name}:{function.__code__.co_firstlineno + offset}"


def yields(n: int):  # type: ignore[no-untyped-def]
    yield n


def yields_from(n: int):  # type: ignore[no-untyped-def]
    yield from [n]


def writes_a_global() -> None:
    global counted
    counted += 1


def writes_a_global_inside() -> None:
    def inner() -> None:
        global counted
        counted += 1

    inner()


def opens_a_file(path: str) -> str:
    with open(path) as file:
        return file.read()


def evaluates(text: str) -> Any:
    return eval(text)


def assigns_in_a_comprehension() -> Any:
    return [last := str.upper(len_of(n)) for n in "ab"], last


def len_of(text: str) -> str:
    return text


def around() -> Callable[..., Any]:
    count = 0

    def writes_outside_in_a_nested_function() -> None:
        def inner() -> None:
            nonlocal count
            count += 1

        inner()

    return writes_outside_in_a_nested_function


def writes_a_global_in_a_class() -> None:
    class Inner:
        global counted
        counted = 1

    Inner()


def reads_in_a_generator() -> int:
    return sum((n := len_of(str(m)), len(n))[1] for m in range(2))


async def awaits_in_the_default_of_a_key() -> list[int]:
    return sorted([1], key=lambda n, m=await grow_later({}): len(len_of(str(n))))  # noqa: B008


@pytest.mark.parametrize(
    ("function", "offset", "words", "instead"),
    [
        (yields, 1, "yields", "collect a list"),
        (yields_from, 1, "yields", "collect a list"),
        (writes_a_global, 1, "writes the global 'counted'", "keep it in a local variable"),
        (writes_a_global_inside, 2, "writes the global 'counted' in 'inner'", "keep it in a local variable"),
        (writes_a_global_in_a_class, 2, "writes the global 'counted' in 'Inner'", "keep it in a local variable"),
        (around(), 2, "writes 'count' of the function around it in 'inner'", "use a variable of the workflow"),
        (opens_a_file, 1, "opens a file", "Move what is done with it into a function"),
        (evaluates, 1, "exec or eval", "Move it into a function"),
        (assigns_in_a_comprehension, 1, ":=", "Write a `for` loop"),
        (reads_in_a_generator, 1, ":=", "Write a `for` loop"),
        (awaits_in_the_default_of_a_key, 1, "neither recorded whole nor call by call", "Assign its parts to variables"),
        (lambda: 1, 0, "cannot be a lambda", "Write it with `def`"),
    ],
)
def test_code_that_cannot_be_durable_is_refused_with_its_line(
    function: Callable[..., Any], offset: int, words: str, instead: str
) -> None:
    """CONFORMANCE A4: at decoration, with file, line and what to write instead."""
    with pytest.raises(NotRewritable) as caught:
        workflow(auto=True, name="refused")(function)
    assert words in str(caught.value)
    assert line_of(function, offset) in str(caught.value)
    assert instead in str(caught.value)
    assert "[P-224]" in str(caught.value)


async def yields_in_async(n: int) -> Any:
    yield n


@pytest.mark.parametrize("auto", [True, False])
def test_a_workflow_that_yields_is_refused_with_its_line(auto: bool) -> None:
    """In auto mode and without it: file, line and what to write instead."""
    with pytest.raises(BadDefinition) as caught:
        (workflow(auto=True) if auto else workflow)(yields_in_async)  # type: ignore[operator]
    assert line_of(yields_in_async, 0) in str(caught.value)
    assert "collect a list" in str(caught.value)


def test_a_nested_function_may_change_variables_of_the_workflow() -> None:
    """It is called again by a replay; what is refused is a change outside."""

    def counts() -> int:
        count = 0

        def inner() -> None:
            nonlocal count
            count += 1

        inner()
        return count

    assert workflow(auto=True)(counts).name == "counts"


def test_a_write_to_the_function_around_is_refused() -> None:
    count = 0

    def more() -> None:
        nonlocal count
        count += 1

    with pytest.raises(NotRewritable, match="writes 'count' of the function around it"):
        workflow(auto=True)(more)


def test_a_function_without_source_is_refused() -> None:
    """CONFORMANCE A4: made by exec, typed into a shell."""
    names: dict[str, Any] = {}
    exec("def made(): return 1", names)
    with pytest.raises(NotRewritable, match="needs the source of 'made'"):
        workflow(auto=True)(names["made"])


def test_a_file_that_changed_since_it_was_imported_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "moved.py"
    path.write_text("def moved():\n    return 1\n")
    names: dict[str, Any] = {"__name__": "moved"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    path.write_text("# a new line\ndef moved():\n    return 2\n")
    with pytest.raises(NotRewritable, match="the file changed"):
        workflow(auto=True)(names["moved"])


def test_a_decorator_below_is_refused() -> None:
    @functools.cache
    def inner() -> None: ...

    @functools.wraps(inner)
    def decorated() -> None: ...

    with pytest.raises(NotRewritable, match="another decorator below"):
        workflow(auto=True)(decorated)


def annotated_variable() -> None:
    ok: int = 1
    conn: sqlite3.Connection = sqlite3.connect(":memory:")
    print(ok, conn)


def annotated_text() -> None:
    sock: "socket.socket | None" = None  # noqa: UP037
    print(sock)


def annotated_in_blocks(n: int) -> None:
    for _ in range(n):
        if n:
            conns: dict[str, list[sqlite3.Connection]] = {}
            print(conns)


def annotated_without_a_value() -> None:
    conn: sqlite3.Connection
    conn = sqlite3.connect(":memory:")
    print(conn)


def around_an_annotation() -> Callable[..., Any]:
    class Local(sqlite3.Connection):
        pass

    def annotated_with_a_class_of_the_function_around() -> None:
        conn: Local | None = None
        print(conn, Local)

    return annotated_with_a_class_of_the_function_around


@pytest.mark.parametrize(
    ("function", "offset", "name", "kind"),
    [
        (annotated_variable, 2, "conn", "Connection"),
        (annotated_text, 1, "sock", "socket"),
        (annotated_in_blocks, 3, "conns", "Connection"),
        (annotated_without_a_value, 1, "conn", "Connection"),
        (around_an_annotation(), 1, "conn", "Local"),
    ],
)
def test_a_variable_of_an_unstorable_type_is_refused(
    function: Callable[..., Any], offset: int, name: str, kind: str
) -> None:
    """CONFORMANCE A4: file, line, name and type."""
    with pytest.raises(UnstorableType) as caught:
        workflow(auto=True)(function)
    assert f"variable '{name}'" in str(caught.value)
    assert kind in str(caught.value)
    assert line_of(function, offset) in str(caught.value)
    assert "Use plain data" in str(caught.value)


def takes(order_id: str, conn: sqlite3.Connection) -> None: ...


def takes_many(*conns: sqlite3.Connection) -> None: ...


def takes_by_name(*, conns: list[sqlite3.Connection]) -> None: ...


def gives() -> sqlite3.Connection: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "role"),
    [
        (takes, "parameter 'conn'"),
        (takes_many, "parameter 'conns'"),
        (takes_by_name, "parameter 'conns'"),
        (gives, "the return value"),
    ],
)
def test_a_parameter_or_result_of_an_unstorable_type_is_refused(function: Callable[..., Any], role: str) -> None:
    """CONFORMANCE A4: file, line, name and type, at decoration."""
    with pytest.raises(UnstorableType) as caught:
        workflow(auto=True)(function)
    assert role in str(caught.value)
    assert "Connection" in str(caught.value)
    assert line_of(function, 0) in str(caught.value)
    assert "Use plain data" in str(caught.value)


def test_a_plain_function_without_auto_mode_names_it() -> None:
    def plain() -> None: ...

    with pytest.raises(BadDefinition, match="auto=True"):
        workflow(plain)  # type: ignore[type-var]


def test_options_are_checked_where_they_are_written() -> None:
    with pytest.raises(TypeError, match="no option 'tries'"):
        workflow(auto=True, tries=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="auto=True"):
        workflow(max_attempts=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="no option 'tries'"):
        options(len_of, tries=3)  # type: ignore[call-arg]
    with pytest.raises(BadDefinition):
        options(3, max_attempts=3)  # type: ignore[arg-type]


# -- found when it runs: what is called is known only then ---------------------------------------------------------


def grow(items: list[int]) -> None:
    items.append(1)


async def grow_later(items: dict[str, int]) -> None:
    items["more"] = 1


def numbers() -> Iterator[int]:
    yield 1


@contextmanager
def opened() -> Iterator[int]:
    yield 1


@workflow(auto=True)
def changes_an_argument() -> list[int]:
    items = [0]
    grow(items)
    return items


@workflow(auto=True)
async def changes_an_argument_later() -> None:
    await grow_later({"a": 1})


@workflow(auto=True)
def changes_a_variable_in_a_comprehension() -> list[Any]:
    seen: list[str] = []
    [seen.append(len_of(text)) for text in ("a", "b")]
    return seen


@workflow(auto=True)
def calls_a_generator() -> None:
    for n in numbers():
        print(n)


@workflow(auto=True)
def enters_a_generator() -> None:
    with opened():
        pass


@workflow(auto=True)
def reads_lazily() -> None:
    lazy = (len_of(text) for text in "ab")
    print(*lazy)


@workflow(auto=True)
async def mixes() -> None:
    print([(grow_later({}), len_of("a")) for _ in range(2)])


@pytest.mark.parametrize(
    ("flow", "cause", "words"),
    [
        (changes_an_argument, LostChange, "'grow' changed one of its arguments"),
        (changes_an_argument_later, LostChange, "'grow_later' changed one of its arguments"),
        (changes_a_variable_in_a_comprehension, LostChange, "also changes a variable"),
        (calls_a_generator, NotRewritable, "'numbers', which makes a generator"),
        (enters_a_generator, NotRewritable, "'opened', which makes a generator"),
        (reads_lazily, NotRewritable, "makes a generator that calls 'len_of'"),
        (mixes, NotRewritable, "also makes coroutines"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_would_be_lost_fails_the_run_with_the_reason(flow: Any, cause: type[Exception], words: str) -> None:
    """Nothing is lost without a word: at the first call, and without retrying it."""

    async def main() -> None:
        async with VirtualEngine() as engine:
            with pytest.raises(RunFailed) as caught:
                await (await engine.start(flow())).result()
            assert isinstance(caught.value.__cause__, cause)
            assert words in str(caught.value)

    run_async(main())


def test_the_line_of_a_refusal_at_run_time_is_the_users() -> None:
    async def main() -> None:
        async with VirtualEngine() as engine:
            with pytest.raises(RunFailed) as caught:
                await (await engine.start(calls_a_generator())).result()
        line = calls_a_generator.function.__code__.co_firstlineno + 2
        assert f"{Path(__file__).name}:{line}" in str(caught.value)

    run_async(main())
