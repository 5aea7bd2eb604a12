"""The engine on a store: what users will do with it, with crashes and faults in between."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from perdure.authoring.event import event
from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, workflow
from perdure.engine.engine import Engine
from perdure.kernel.verbs.clock import sleep
from perdure.kernel.verbs.events import receive, send
from perdure.store.protocol import Store
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import World
from perdure.testing.wrappers import CrashingStore, FaultyStore

#: The sweeps of tests come often, so that nobody waits for them.
_SETTINGS: dict[str, Any] = {"sweep_interval": 0.02}


def _definitions() -> tuple[Workflow[..., Any], list[str]]:
    """Made anew for each check, so that they are registered wherever the check runs."""
    ran: list[str] = []

    @event(name="store_suite_told")
    @dataclass
    class Told:
        number: int

    @step(name="store_suite_work", max_attempts=3, initial_delay=0.001)
    async def work(name: str) -> str:
        ran.append(name)
        return name

    @workflow(name="store_suite_child")
    async def child(number: int) -> int:
        await work("child")
        return 2 * number

    @workflow(name="store_suite_parent")
    async def parent() -> list[Any]:
        first = await work("first")
        both = await asyncio.gather(child(21), work("beside"))
        await sleep(0.002)
        await send("run", Told(5), key="k")
        told = await receive(Told, timeout=60)
        return [first, *both, told.number]

    return parent, ran


EXPECTED = ["first", 42, "beside", 5]


async def _whole(engine: Engine, parent: Workflow[..., Any]) -> Any:
    return await (await engine.start(parent(), id="run")).result(timeout=30)


def check_a_run_goes_through(world: World) -> None:
    """Steps, a child, a timer, an event and a result; then it is there for every caller."""

    async def check(store: Store) -> None:
        parent, ran = _definitions()
        async with Engine(world.store(), **_SETTINGS) as engine:
            assert await _whole(engine, parent) == EXPECTED
        async with Engine(world.store(), **_SETTINGS) as engine:
            assert await _whole(engine, parent) == EXPECTED
            assert len(await engine.list()) == 2
        assert sorted(ran) == ["beside", "child", "first"]

    world.run(check)


def check_two_engines_share_it(world: World) -> None:
    """CONFORMANCE W6, FAULTS O10: what one does the other sees, and no step runs twice."""

    async def check(store: Store) -> None:
        parent, ran = _definitions()
        async with Engine(world.store(), **_SETTINGS) as first, Engine(world.store(), **_SETTINGS) as second:
            await first.start(parent(), id="run")
            assert await second.result("run", timeout=30) == EXPECTED
            assert sorted(ran) == ["beside", "child", "first"]

    world.run(check)


@cases([False, True])
def check_a_crash_at_every_record(world: World, before: bool) -> None:
    """FAULTS A: the same result after a crash before (or after) each commit; recorded work is not repeated."""

    async def check(store: Store) -> None:
        limit, died = 0, True
        while died:
            limit += 1
            one = world.fresh()
            parent, ran = _definitions()
            died = await _die_at(one, limit, before, functools.partial(_whole, parent=parent))
            async with Engine(one.store(), **_SETTINGS) as engine:
                assert await _whole(engine, parent) == EXPECTED, f"after a crash at record {limit}"
                kinds = [entry.kind for entry in await engine.admin.history("run")]
            assert kinds.count("child_done") == kinds.count("event_received") == 1
            assert max(ran.count(name) for name in ran) <= 2
        assert limit > 8

    world.run(check)


async def _die_at(world: World, limit: int, before: bool, act: Callable[[Engine], Awaitable[Any]]) -> bool:
    inner = world.store()
    store: Any = CrashingStore(inner, limit, before=before)
    engine = Engine(store, **_SETTINGS)
    await engine.open()
    worker = engine.worker
    acting = asyncio.ensure_future(act(engine))
    dying = asyncio.ensure_future(store.dead.wait())
    await asyncio.wait({acting, dying}, return_when=asyncio.FIRST_COMPLETED)
    if not store.dead.is_set():
        dying.cancel()
        try:
            await acting
        finally:
            await engine.close()
        return False
    acting.cancel()
    await engine.abandon()
    store.let_go()
    await asyncio.gather(acting, return_exceptions=True)
    if worker is not None:
        await world.die(inner, worker.id)
    return True


@cases([(name, after) for name in ("create", "commit", "claim", "load", "release", "news") for after in (False, True)])
def check_an_engine_outlasts_a_fault(world: World, name: str, after: bool) -> None:
    """CONFORMANCE W2, FAULTS B1, B2: a call is not answered, before or after it happened; nothing is lost."""

    async def check(store: Store) -> None:
        for number in (1, 2, 3):
            one = world.fresh()
            parent, ran = _definitions()
            faulty: Any = FaultyStore(one.store(), number, after=after, only=name)
            faulty.calls = faulty.calls - {"register_worker", "unregister_worker"}
            async with Engine(faulty, **_SETTINGS) as engine:
                assert await _insist(engine, parent) == EXPECTED
                assert len(await engine.list()) == 2
            assert sorted(set(ran)) == ["beside", "child", "first"]

    world.run(check)


async def _insist(engine: Engine, parent: Workflow[..., Any]) -> Any:
    """What a careful client does: the same start again."""
    for _ in range(3):
        try:
            return await _whole(engine, parent)
        except Exception as error:
            if type(error).__name__ != "StoreUnavailable":
                raise
    return await _whole(engine, parent)
