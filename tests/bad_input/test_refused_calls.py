"""Bad input to the engine: a typed error that says what, where and what to do; and nothing is written."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from bad_input.snapshots import everything, quiet
from perdure import Engine, PerdureError, RunFinished, RunNotFound, event, receive, workflow
from perdure.errors import ActionRefused, BadArgument, InboxFull, NotDecodable, NotStorable, TooLarge
from support.lives import Lives, run_async, until


@event
@dataclass
class Letter:
    body: Any


@event
@dataclass
class Counted:
    number: int


@dataclass
class NotAnEvent:
    body: str


@workflow
async def takes_anything(value: Any = None) -> Any:
    await receive(Letter)
    return value


@workflow
async def takes_numbers(number: int, more: list[int] | None = None) -> int:
    return number


def circle() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


def deep() -> Any:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


UNSTORABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "lambda": (lambda: {"rows": [1, {"f": lambda: None}]}, "$.rows[1].f"),
    "lock": (lambda: [threading.Lock()], "$[0]"),
    "socket class": (lambda: (1, socket.socket), "$[1]"),
    "object": (object, "$"),
    "circle": (circle, "$"),
    "deep": (deep, "$"),
    "generator": (lambda: {"g": (n for n in range(3))}, "$.g"),
    "surrogate key": (lambda: {"k": {"ok": object()}}, "$.k.ok"),
}


async def refused(engine: Engine, error: type[BaseException], call: Callable[[], Awaitable[Any]]) -> str:
    """The call raises this error, in full form, and the store is as before."""
    before = await everything(engine)
    with pytest.raises(error) as caught:
        await call()
    assert await everything(engine) == before, "a refused call wrote something"
    assert isinstance(caught.value, PerdureError)
    text = str(caught.value)
    assert text.endswith(f"[{caught.value.code}]")
    assert len(text) < 2_000, "errors are for reading"
    return text


def scene(lives: Lives, test: Callable[[Engine], Awaitable[None]], **settings: Any) -> None:
    """An engine with a waiting and a finished run, with a worker and then from a client without one."""

    async def main() -> None:
        async with lives.engine(**settings) as engine:
            await engine.start(takes_anything("w"), id="waiting")
            await (await engine.start(takes_numbers(1), id="finished")).result()
            await until(lambda: quiet(engine, "waiting"))
            await test(engine)
            async with lives.engine(worker=False, **settings) as client:
                await test(client)

    run_async(main())


@pytest.mark.parametrize("name", list(UNSTORABLE))
def test_unstorable_input(lives: Lives, name: str) -> None:
    """The issue's bad input, FAULTS E1 and E6: refused at the call, with the path to the value."""
    make, path = UNSTORABLE[name]

    async def test(engine: Engine) -> None:
        text = await refused(engine, NotStorable, lambda: engine.start(takes_anything(make()), id="new"))
        assert path in text
        assert "takes_anything" in text

    scene(lives, test)


@pytest.mark.parametrize("name", list(UNSTORABLE))
def test_unstorable_event(lives: Lives, name: str) -> None:
    """The issue's bad input, FAULTS E1 and E6."""
    make, _ = UNSTORABLE[name]

    async def test(engine: Engine) -> None:
        text = await refused(engine, NotStorable, lambda: engine.send("waiting", Letter(make())))
        assert "Letter" in text
        assert "$.body" in text

    scene(lives, test)


def test_input_and_event_above_the_size_limit(lives: Lives) -> None:
    """FAULTS E7: with the size and the limit."""
    large = "x" * (2 * 1024 * 1024 + 1)

    async def test(engine: Engine) -> None:
        for call in (
            lambda: engine.start(takes_anything(large), id="new"),
            lambda: engine.send("waiting", Letter(large)),
        ):
            text = await refused(engine, TooLarge, call)
            assert "2" in text

    scene(lives, test)


@pytest.mark.parametrize(
    "make",
    [
        lambda: takes_numbers(),
        lambda: takes_numbers(1, [], 3),
        lambda: takes_numbers(1, other=2),
        lambda: takes_numbers(1, number=2),
    ],
    ids=["missing", "too many", "unknown keyword", "twice"],
)
def test_arguments_that_do_not_fit_the_signature(lives: Lives, make: Callable[[], Any]) -> None:
    """The issue's bad input, FAULTS F6: at the call, as Python would, naming the workflow."""

    async def test(engine: Engine) -> None:
        before = await everything(engine)
        with pytest.raises((TypeError, PerdureError), match="takes_numbers"):
            await engine.start(make(), id="new")
        assert await everything(engine) == before

    scene(lives, test)


@pytest.mark.parametrize(
    "make",
    [
        lambda: takes_numbers("one"),
        lambda: takes_numbers(None),
        lambda: takes_numbers(1.5),
        lambda: takes_numbers(1, ["a"]),
    ],
    ids=["text", "none", "float", "list of text"],
)
def test_arguments_of_the_wrong_type(lives: Lives, make: Callable[[], Any]) -> None:
    """The issue's bad input, FAULTS F6: before anything is written, naming the parameter."""

    async def test(engine: Engine) -> None:
        async def call() -> None:
            await engine.start(make(), id="new")

        before = await everything(engine)
        with pytest.raises((NotStorable, NotDecodable)) as caught:
            await call()
        assert await everything(engine) == before
        assert "number" in str(caught.value) or "more" in str(caught.value)

    scene(lives, test)


def test_event_of_the_wrong_type(lives: Lives) -> None:
    """FAULTS F6: an event whose field does not fit its annotation is refused where it is sent."""

    async def test(engine: Engine) -> None:
        text = await refused(
            engine,
            (NotStorable, NotDecodable),
            lambda: engine.send("waiting", Counted("many")),  # type: ignore[arg-type]
        )
        assert "Counted" in text
        assert "number" in text

    scene(lives, test)


@pytest.mark.parametrize("thing", [NotAnEvent("x"), "text", None, Letter, 42], ids=repr)
def test_sending_what_is_not_an_event(lives: Lives, thing: Any) -> None:
    """FAULTS F9: says how to make it one."""

    async def test(engine: Engine) -> None:
        assert "@event" in await refused(engine, BadArgument, lambda: engine.send("waiting", thing))

    scene(lives, test)


@pytest.mark.parametrize(
    "thing", [takes_numbers, "takes_numbers", None, 42], ids=["workflow", "name", "none", "number"]
)
def test_starting_what_is_not_a_workflow_call(lives: Lives, thing: Any) -> None:
    """It is refused with what to write instead. FAULTS F3."""

    async def test(engine: Engine) -> None:
        assert "workflow call" in await refused(engine, BadArgument, lambda: engine.start(thing, id="new"))
        await refused(
            engine,
            BadArgument,
            lambda: engine.start(takes_numbers(1), id="new", on_conflict="replace"),  # type: ignore[arg-type]
        )

    scene(lives, test)


BAD_IDS: dict[str, Any] = {
    "empty": "",
    "spaces": "   ",
    "outer space": " run",
    "newline": "a\nb",
    "NUL": "a\0b",
    "escape": "a\x1b[31m",
    "delete": "a\x7f",
    "too long": "x" * 501,
    "too long in bytes": "é" * 251,
    "3 KB": "x" * 3_000,
    "slash": "a/b",
    "dot": ".",
    "dot dot": "..",
    "surrogate": "a\ud800",
    "number": 7,
    "bytes": b"run",
}


@pytest.mark.parametrize("name", list(BAD_IDS))
def test_bad_ids(lives: Lives, name: str) -> None:
    """The issue's bad input, FAULTS F1: refused with the rule, by every call that takes one."""
    bad = BAD_IDS[name]

    async def test(engine: Engine) -> None:
        text = await refused(engine, BadArgument, lambda: engine.start(takes_numbers(1), id=bad))
        assert "run id" in text
        if name == "slash":  # children have one, so it may be looked up
            return
        for call in (
            lambda: engine.send(bad, Letter("x")),
            lambda: engine.cancel(bad),
            lambda: engine.admin.terminate(bad),
            lambda: engine.admin.resume(bad),
            lambda: engine.status(bad),
            lambda: engine.result(bad),
            lambda: engine.admin.history(bad),
            lambda: engine.get(bad).result(),
        ):
            await refused(engine, BadArgument, call)

    scene(lives, test)


@pytest.mark.parametrize(
    "good", ["x" * 500, "é" * 250, "a b", "注文-1", "a.b", "emoji 🎉", "'; DROP TABLE runs; --", "%_"]
)
def test_unusual_ids_that_are_fine(lives: Lives, good: str) -> None:
    """FAULTS F1 and E19: exact bytes come back."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(takes_numbers(3), id=good)
            assert await handle.result() == 3
            assert (await engine.status(good)).id == good
            assert [view.id for view in await engine.list(id_prefix=good)] == [good]

    run_async(main())


def test_unknown_runs(lives: Lives) -> None:
    """The issue's bad input, FAULTS F9."""

    async def test(engine: Engine) -> None:
        for call in (
            lambda: engine.send("nobody", Letter("x")),
            lambda: engine.cancel("nobody"),
            lambda: engine.admin.terminate("nobody"),
            lambda: engine.admin.resume("nobody"),
            lambda: engine.status("nobody"),
            lambda: engine.result("nobody"),
            lambda: engine.admin.history("nobody"),
            lambda: engine.list(after="nobody"),
        ):
            assert "'nobody'" in await refused(engine, RunNotFound, call)

    scene(lives, test)


def test_finished_runs(lives: Lives) -> None:
    """The issue's bad input, FAULTS F9 and F11: send and resume are errors; cancel and terminate are False."""

    async def test(engine: Engine) -> None:
        text = await refused(engine, RunFinished, lambda: engine.send("finished", Letter("x")))
        assert "finished" in text
        before = await everything(engine)
        assert not await engine.cancel("finished")
        assert not await engine.admin.terminate("finished")
        assert "perdure fork finished" in await refused(engine, ActionRefused, lambda: engine.admin.resume("finished"))
        assert await everything(engine) == before

    scene(lives, test)


def test_full_inbox(lives: Lives) -> None:
    """One event too many is refused, not dropped, and says so."""

    async def test(engine: Engine) -> None:
        if len(await engine.store.inbox((await engine.store.get("waiting")).key, 10)) == 0:  # type: ignore[union-attr]
            for number in range(3):
                await engine.send("waiting", Counted(number))
        text = await refused(engine, InboxFull, lambda: engine.send("waiting", Counted(9)))
        assert "Counted" in text
        assert "refused" in text

    scene(lives, test, max_pending_events=3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, "soon", "", True, [], 200 * 366 * 86_400], ids=repr)
def test_bad_durations(lives: Lives, bad: Any) -> None:
    """The issue's bad input, FAULTS F7: for `result` as for everything else."""

    async def test(engine: Engine) -> None:
        await refused(engine, BadArgument, lambda: engine.result("waiting", timeout=bad))
        await refused(engine, BadArgument, lambda: engine.get("waiting").result(timeout=bad))

    scene(lives, test)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, "soon"], ids=repr)
def test_bad_grace_of_close_leaves_the_engine_open(lives: Lives, bad: Any) -> None:
    """The issue's bad input: a refused close closes nothing."""

    async def main() -> None:
        async with lives.engine() as engine:
            with pytest.raises(BadArgument):
                await engine.close(bad)
            assert await (await engine.start(takes_numbers(1))).result() == 1

    run_async(main())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, "soon", True], ids=repr)
def test_bad_cancel_grace_is_refused_at_the_definition(bad: Any) -> None:
    """The issue's bad input."""

    async def never_registered_grace() -> None: ...

    with pytest.raises(PerdureError):
        workflow(cancel_grace=bad)(never_registered_grace)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": 10**9},
        {"limit": "ten"},
        {"status": "bogus"},
        {"status": ["waiting", "bogus"]},
        {"after": ""},
    ],
    ids=str,
)
def test_bad_listings(lives: Lives, options: dict[str, Any]) -> None:
    """Wrong filters and limits are refused instead of giving an empty list. FAULTS F12."""

    async def test(engine: Engine) -> None:
        await refused(engine, BadArgument, lambda: engine.list(**options))

    scene(lives, test)


@pytest.mark.parametrize("prefix", ["%", "_", "wait%", "'", "waitin_"])
def test_wildcards_in_a_prefix_mean_themselves(lives: Lives, prefix: str) -> None:
    """A prefix is text, and never a pattern. FAULTS F12 and S2."""

    async def test(engine: Engine) -> None:
        assert await engine.list(id_prefix=prefix) == []
        assert [view.id for view in await engine.list(id_prefix="wait")] == ["waiting"]

    scene(lives, test)


@pytest.mark.parametrize("reason", [7, None, b"x"], ids=repr)
def test_reasons_are_text(lives: Lives, reason: Any) -> None:
    """FAULTS F: a reason of another type is refused before it is stored."""

    async def test(engine: Engine) -> None:
        await refused(engine, BadArgument, lambda: engine.cancel("waiting", reason))
        await refused(engine, BadArgument, lambda: engine.admin.terminate("waiting", reason))

    scene(lives, test)


@pytest.mark.parametrize("key", [7, b"x", ""], ids=repr)
def test_keys_of_events_are_text(lives: Lives, key: Any) -> None:
    """FAULTS F: a deduplication key of another type (or an empty one, which is a mistake) is refused."""

    async def test(engine: Engine) -> None:
        await refused(engine, BadArgument, lambda: engine.send("waiting", Counted(1), key=key))

    scene(lives, test)
