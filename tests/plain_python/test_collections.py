"""Garbage collections: what they finalise belongs to its own run or to the host, never to the run whose turn it is."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from kernel.kernel_kit import Drive, steps_asked
from perdure import Break, Engine, current_step, loop, sleep, step, workflow
from perdure.errors import Forbidden
from perdure.kernel import journal
from perdure.kernel.commands import Warn
from perdure.kernel.outcomes import Complete
from support.lives import Lives, run_async

_collect_in: set[str] = set()
_seen: list[str] = []


@pytest.fixture(autouse=True)
def _only_forced_collections() -> Iterator[None]:
    _collect_in.clear()
    _seen.clear()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Cycle:
    """Whatever is put into it is only found by a collection."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.me = self


@step
async def fetch(number: int) -> int:
    return number


@step
async def release(who: str) -> str:
    _seen.append(f"{who} in {current_step().run_id}")
    return who


async def pages(who: str) -> AsyncIterator[int]:
    try:
        for number in range(100):
            yield await fetch(number)
    finally:
        await release(who)


async def leaves_in_a_cycle(who: str) -> None:
    """The usual cycle: an exception that is kept, whose traceback holds this frame."""
    last: Exception | None = None
    open_pages = pages(who)
    try:
        async for _ in open_pages:
            raise ValueError(who)
    except ValueError as error:
        last = error
    if last is None:
        raise AssertionError("nothing was raised")


@workflow
async def leaves_generators(who: str) -> str:
    await leaves_in_a_cycle(f"{who} 1")
    if who in _collect_in:
        gc.collect()
    await leaves_in_a_cycle(f"{who} 2")
    await fetch(9)
    return who


@workflow
async def leaves_generators_alone() -> str:
    await leaves_in_a_cycle("alone")
    gc.collect()
    await fetch(9)
    return "alone"


@workflow
async def collects() -> str:
    await fetch(1)
    gc.collect()
    await fetch(2)
    gc.collect()
    await sleep(1)
    return "done"


def _value(drive: Drive) -> bytes:
    assert isinstance(drive.run.outcome, Complete), drive.run.outcome
    return bytes(drive.run.outcome.value)


def _journal_of(who: str, collect: Callable[[int], object]) -> list[str]:
    """Every record of a run in the order of delivery, with something done after each."""
    with Drive(leaves_generators(who), run_id=who) as drive:
        collect(0)
        for number in range(1, 10):
            if drive.run.outcome is not None:
                break
            location = drive.pending()[0].removeprefix("step ")
            drive.finish(location, "text" if "release" in location else 1)
            collect(number)
        assert _value(drive) == f'"{who}"'.encode()
        return [record.location for record in drive.records]


def test_generators_left_in_cycles_are_closed_at_the_end_in_the_order_they_were_begun() -> None:
    """Wherever collections come: at none, at every record, at the first or the last."""
    expected = ["", "fetch", "fetch#2", "fetch#3", "aclose/release", "aclose#2/release"]
    assert _journal_of("never", lambda _number: None) == expected
    assert _journal_of("always", lambda _number: gc.collect()) == expected
    for moment in range(6):
        assert _journal_of(f"at {moment}", lambda number, at=moment: gc.collect() if number == at else 0) == expected
    _collect_in.add("inside")
    assert _journal_of("inside", lambda _number: None) == expected


def test_a_life_without_collections_goes_on_where_one_with_them_was_cut() -> None:
    """The set of open generators is the same in every life: those collected, those in cycles, those still held."""
    _collect_in.add("run")
    with Drive(leaves_generators("run")) as drive:
        for location, value in [("fetch", 0), ("fetch#2", 0), ("fetch#3", 9), ("aclose/release", "x")]:
            drive.finish(location, value)
        _collect_in.clear()
        for count in range(1, len(drive.records) + 1):
            rebuilt, _ = drive.rebuilt(count)
            assert rebuilt.outcome is None
        assert [f"step {o.location}" for o in rebuilt.pending] == drive.pending() == ["step aclose#2/release"]
        drive.run = rebuilt
        drive.finish("aclose#2/release", "y")
        assert _value(drive) == b'"run"'


def test_a_generator_of_one_run_is_not_closed_by_the_turn_of_another() -> None:
    with Drive(leaves_generators("a"), run_id="a") as first, Drive(collects(), run_id="b") as second:
        first.finish("fetch", 0)
        first.finish("fetch#2", 0)
        commands = second.finish("fetch", 1)
        assert second.pending() == ["step fetch#2"]
        assert steps_asked(commands) == ["fetch#2"]
        assert first.pending() == ["step fetch#3"]
        assert steps_asked(first.finish("fetch#3", 9)) == ["aclose/release", "aclose#2/release"]


def test_runs_in_an_engine_release_their_own(lives: Lives) -> None:
    """Natural collections, and one in the middle: each `finally` block in its own run; then a crash at every record."""
    gc.enable()

    async def main() -> list[str]:
        async with lives.engine() as engine:
            handles = [await engine.start(leaves_generators(f"r{n}"), id=f"r{n}") for n in range(50)]
            gc.collect()
            return list(await asyncio.gather(*(handle.result(timeout=20) for handle in handles)))

    assert run_async(main()) == [f"r{n}" for n in range(50)]
    assert sorted(_seen) == sorted(f"r{n} {k} in r{n}" for n in range(50) for k in (1, 2))
    assert run_async(lives.crash_at_every_record(leaves_generators_alone)) == "alone"


# -- the host's ----------------------------------------------------------------------------------------------


async def _host_cleanup(log: list[object]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        log.append(asyncio.get_running_loop())
        await asyncio.sleep(3600)


async def _host_pages(log: list[object]) -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        log.append(asyncio.get_running_loop())


def _begun(coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    coroutine.send(None)
    return coroutine


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_coroutine_of_the_host_that_is_collected_in_a_turn_runs_on_the_hosts_loop() -> None:
    log: list[object] = []

    async def main() -> None:
        async with Engine(":memory:") as engine:
            Cycle(_begun(_host_cleanup(log)))
            run = await engine.start(collects(), id="run")
            await asyncio.sleep(0)
            while not log:
                await asyncio.sleep(0.001)
            status = await run.status()
            assert status.waiting_count <= 1
            assert log == [asyncio.get_running_loop()]
            await run.cancel()

    run_async(main())


_whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")


async def _host_meddles(log: list[str]) -> None:
    try:
        await asyncio.sleep(1000)
    finally:
        log.append(_whose.get())
        _whose.set("the host's")


@workflow
async def collects_with_a_variable() -> str:
    _whose.set("the run's")
    await fetch(1)
    gc.collect()
    return _whose.get()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_collected_in_a_turn_neither_sees_nor_sets_the_context_of_the_run() -> None:
    log: list[str] = []

    async def main() -> str:
        async with Engine(":memory:") as engine:
            Cycle(_begun(_host_meddles(log)))
            run = await engine.start(collects_with_a_variable(), id="run")
            return await run.result(timeout=20)

    assert run_async(main()) == "the run's"
    assert log == ["nobody's"]


def test_a_generator_of_the_host_that_is_collected_in_a_turn_is_closed_by_the_host() -> None:
    log: list[object] = []

    async def main() -> None:
        async with Engine(":memory:") as engine:
            host_pages = _host_pages(log)
            await anext(host_pages)
            Cycle(host_pages)
            del host_pages
            run = await engine.start(collects(), id="run")
            while not log:
                await asyncio.sleep(0.001)
            assert log == [asyncio.get_running_loop()]
            await run.cancel()

    run_async(main())


# -- objects that call asyncio when they are finalised ---------------------------------------------------------


class Waker:
    """Holds the loop that it was made on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.me = self

    def __del__(self) -> None:
        self.loop.call_soon(_seen.append, "woken")
        self.loop.call_later(5, _seen.append, "woken later")
        try:
            _seen.append(type(asyncio.get_running_loop()).__name__)
        except RuntimeError:
            _seen.append("no loop")


@workflow
async def makes_wakers() -> str:
    Waker()
    gc.collect()
    await fetch(1)
    return "done"


@workflow
async def makes_weak_callbacks() -> str:
    cycle = Cycle(None)
    watch = weakref.ref(cycle, lambda _: asyncio.get_running_loop().call_later(5, print))
    del cycle
    gc.collect()
    await fetch(1)
    return f"done {watch() is None}"


def test_what_an_object_asks_of_a_run_when_it_is_collected_is_left_undone_and_reported() -> None:
    with Drive(makes_wakers()) as drive:
        assert drive.pending() == ["step fetch"]
        assert _seen == ["no loop"]
        warnings = [command.message for command in drive.commands if isinstance(command, Warn)]
        assert len(warnings) == 1
        assert "garbage collector" in warnings[0]
        drive.finish("fetch", 1)
        assert _value(drive) == b'"done"'
    assert _seen == ["no loop"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_callbacks_of_weak_references_see_no_run_in_a_collection() -> None:
    with Drive(makes_weak_callbacks()) as drive:
        assert drive.pending() == ["step fetch"]
        drive.finish("fetch", 1)
        assert _value(drive) == b'"done True"'


# -- contexts -------------------------------------------------------------------------------------------------

_label: contextvars.ContextVar[str] = contextvars.ContextVar("label", default="none")


async def labelled() -> AsyncIterator[int]:
    token = _label.set("inside")
    try:
        yield 1
        yield 2
    finally:
        try:
            _label.reset(token)
        except ValueError as error:
            _seen.append(str(error))
        else:
            _seen.append(_label.get())


@workflow
async def breaks_out() -> str:
    async for _ in labelled():
        break
    await asyncio.sleep(0)
    return _label.get()


@workflow
async def leaves_labelled_in_a_cycle() -> None:
    open_labelled = labelled()
    Cycle(open_labelled)
    await anext(open_labelled)


@workflow
async def waits_labelled() -> None:
    async def inner() -> None:
        token = _label.set("inside")
        try:
            await sleep(3600)
        finally:
            try:
                _label.reset(token)
            except ValueError as error:
                _seen.append(str(error))
            else:
                _seen.append(_label.get())

    await asyncio.gather(inner(), inner())


def test_a_generator_is_closed_in_the_context_it_was_begun_in() -> None:
    with Drive(breaks_out()) as drive:
        assert _value(drive) == b'"none"'
    with Drive(leaves_labelled_in_a_cycle()) as drive:
        assert _value(drive) == b"null"
    assert _seen == ["none", "none"]


def test_a_run_that_leaves_memory_is_closed_in_the_contexts_of_its_tasks() -> None:
    drive = Drive(waits_labelled())
    assert drive.pending() == ["timer inner/sleep", "timer inner#2/sleep"]
    drive.close()
    assert _seen == ["none", "none"]


# -- ends -----------------------------------------------------------------------------------------------------


def test_a_run_that_ended_without_closing_its_generators_still_replays() -> None:
    """As journals have it that were written before perdure waited for them."""
    with Drive(leaves_generators("run")) as drive:
        for location in ("fetch", "fetch#2", "fetch#3"):
            drive.finish(location, 1)
        assert drive.pending() == ["step aclose/release", "step aclose#2/release"]
        drive._append("", journal.Completed(journal.Raw(b'"run"')))
        rebuilt, commands = drive.rebuilt()
        assert isinstance(rebuilt.outcome, Complete)
        assert steps_asked(commands) == []


def test_cancelling_a_run_that_closes_its_generators_ends_it() -> None:
    with Drive(leaves_generators("run")) as drive:
        for location in ("fetch", "fetch#2", "fetch#3"):
            drive.finish(location, 1)
        drive.deliver("", journal.CancelRequested("enough", 0))
        assert _value(drive) == b'"run"'
        assert drive.pending() == []


async def _waits_for_nothing() -> AsyncIterator[int]:
    try:
        yield 1
    finally:
        await asyncio.get_running_loop().create_future()


@workflow
async def never_closes() -> str:
    open_pages = _waits_for_nothing()
    Cycle(open_pages)
    await anext(open_pages)
    return "done"


def test_a_cleanup_that_waits_for_nothing_does_not_hold_up_the_end() -> None:
    with Drive(never_closes()) as drive:
        assert _value(drive) == b'"done"'


async def _one_more(number: int) -> int | Break[int]:
    await leaves_in_a_cycle(f"{number}")
    return Break(number) if number == 3 else number + 1


@workflow
async def leaves_them_in_a_loop() -> int:
    return await loop(_one_more, 1)


def test_generators_of_an_iteration_are_closed_when_it_ends(lives: Lives) -> None:
    """A replay leaves past iterations out, and with them their generators."""
    with Drive(leaves_them_in_a_loop()) as drive:
        drive.finish("loop~1/fetch", 1)
        assert drive.pending() == ["step loop~1/aclose/release"]
        drive.finish("loop~1/aclose/release", "x")
        assert drive.pending() == ["step loop~2/fetch"]
    assert run_async(lives.crash_at_every_record(leaves_them_in_a_loop)) == 3


@workflow
async def leaves_many(count: int) -> int:
    for number in range(count):
        open_pages = labelled()
        if number % 2:
            Cycle(open_pages)
        await anext(open_pages)
    return count


def test_a_run_that_leaves_more_generators_open_than_it_may_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with Drive(leaves_many(3000)) as drive:
        assert _value(drive) == b"3000"
    assert len(_seen) == 3000
    monkeypatch.setattr("perdure.limits.OPEN_GENERATORS_MAX", 100)
    with pytest.raises(Forbidden, match="aclosing"), Drive(leaves_many(3000)):
        pass


def test_what_is_known_of_generators_goes_with_them() -> None:
    from perdure.kernel.eventloop import generators

    before = len(generators._begun)
    for _ in range(3):
        with Drive(leaves_many(500)) as drive:
            assert _value(drive) == b"500"
    assert len(generators._begun) <= before
