"""`fork`: a new run from the past of another, with another result or input; the original is only read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from admin.flows import Outside, kinds, reaches
from events.kinds import Note, Tick
from perdure import Engine, RunFailed, RunNotFound, current_step, info, random, receive, start_child, step, workflow
from perdure.errors import ActionRefused, BadArgument, RunConflict, UnknownLocation
from perdure.testing import VirtualEngine
from perdure.types import Status
from support.lives import Lives, run_async, until

outside = Outside()
keys: list[str] = []


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()
    keys.clear()


@dataclass
class Quote:
    cents: int


@step
async def quote(item: str) -> Quote:
    await outside.do("quote")
    return Quote(len(item))


@step(max_attempts=1)
async def act(what: str) -> str:
    keys.append(current_step().idempotency_key)
    return await outside.do(what)


@workflow
async def child(what: str) -> str:
    return await act(what)


@workflow
async def order(item: str, count: int = 1) -> dict[str, Any]:
    price = await quote(item)
    luck = random()
    note = await receive(Note)
    part = await child("part")
    tick = await receive(Tick)
    done = await act("ship")
    return {
        "price": price.cents * count,
        "note": note.text,
        "part": part,
        "tick": tick.number,
        "done": done,
        "luck": luck,
    }


async def finished(engine: Engine, run_id: str = "run") -> dict[str, Any]:
    await engine.start(order("book"), id=run_id)
    await engine.send(run_id, Note("gift"))
    await engine.send(run_id, Tick(7))
    return dict(await engine.result(run_id, timeout=20))


def test_from_a_location_everything_after_it_happens_again(lives: Lives) -> None:
    """CONFORMANCE L4: what is before stands, events received after it come again, the original is untouched."""

    async def main() -> None:
        async with lives.engine() as engine:
            original = await finished(engine)
            before = await engine.admin.export_run("run")
            forked = engine.get(await engine.admin.fork("run", id="again", at="receive#2"))
            assert forked.id == "again"
            assert await forked.result(timeout=20) == original, "also what was drawn at random before that point"
            assert outside.done == {"quote": 1, "part": 1, "ship": 2}
            assert len(set(keys)) == 3, "a new run has its own idempotency keys"
            assert await engine.admin.export_run("run") == before

    run_async(main())


@workflow
async def confirmed(item: str) -> list[str]:
    shipped = await act(item)
    try:
        async with asyncio.timeout(600):
            note = await receive(Note)
    except TimeoutError:
        return [shipped, "nobody confirmed"]
    return [shipped, note.text]


def test_an_edited_result_happens_when_the_fork_is_made() -> None:
    """A timeout that begins after it has its whole time, even if the original got there long ago; the same fork again
    is the same run."""
    outside.broken.add("book")

    async def main(engine: VirtualEngine) -> None:
        run = await engine.start(confirmed("book"), id="run")
        with pytest.raises(RunFailed):
            await run.result()
        await engine.advance(3600)
        forked_at = engine.now
        forked = engine.get(await engine.admin.fork("run", id="again", at="act", result="by hand"))
        await engine.wait_until(forked)
        await engine.advance(60)
        assert await engine.admin.fork("run", id="again", at="act", result="by hand") == "again"
        with pytest.raises(RunConflict):
            await engine.admin.fork("run", id="again", at="act", result="by foot")
        assert [entry.at for entry in await engine.admin.history("again") if entry.location == "act"] == [forked_at]
        await forked.send(Note("yes"))
        assert await forked.result() == ["by hand", "yes"]

    engine = VirtualEngine()
    try:
        engine.run(main(engine))
    finally:
        engine.shut()


@pytest.mark.parametrize(
    ("at", "result", "changed"),
    [
        ("quote", {"cents": 100}, {"price": 100}),
        ("quote", Quote(100), {"price": 100}),
        ("receive", {"text": "no gift"}, {"note": "no gift"}),
        ("child", "spare part", {"part": "spare part"}),
        ("act", "lost", {"done": "lost"}),
    ],
)
def test_with_an_edited_result(lives: Lives, at: str, result: Any, changed: dict[str, Any]) -> None:
    """CONFORMANCE L4: of a step, an event, a child; that operation does not happen again."""

    async def main() -> None:
        async with lives.engine() as engine:
            original = await finished(engine)
            count = outside.done.copy()
            forked = engine.get(await engine.admin.fork("run", id="again", at=at, result=result))
            assert await forked.result(timeout=20) == original | changed
            assert outside.done["quote"] == 1
            assert outside.done["ship"] == count["ship"] + (at != "act")

    run_async(main())


def test_from_the_start_with_an_edited_input(lives: Lives) -> None:
    """CONFORMANCE L4: other arguments by name; starting the id again with that input finds the fork."""

    async def main() -> None:
        async with lives.engine() as engine:
            await finished(engine)
            forked = engine.get(await engine.admin.fork("run", id="again", arguments={"item": "pencil", "count": 2}))
            assert (await forked.result(timeout=20))["price"] == 12
            assert (await engine.start(order("pencil", 2), id="again")).id == "again"
            with pytest.raises(BadArgument, match=r"no argument 'color'.*'item'"):
                await engine.admin.fork("run", id="other", arguments={"color": "red"})

    run_async(main())


def test_a_failed_run_takes_another_way(lives: Lives) -> None:
    """CONFORMANCE L4: what resume refuses, or what a person decides: the failed step has a result after all."""
    outside.broken = {"ship"}

    async def main() -> None:
        async with lives.engine() as engine:
            with pytest.raises(RunFailed):
                await finished(engine)
            forked = engine.get(await engine.admin.fork("run", id="by-hand", at="act", result="shipped by hand"))
            assert (await forked.result(timeout=20))["done"] == "shipped by hand"
            assert outside.done["ship"] == 1

    run_async(main())


def test_at_what_the_run_waits_for_now(lives: Lives) -> None:
    """CONFORMANCE L4: an open run; unread events of other types go with the fork."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(order("book"), id="run")
            await engine.send("run", Tick(3))
            await reaches(engine, "run", Status.WAITING)
            forked = engine.get(await engine.admin.fork("run", id="again", at="receive", result={"text": "as if"}))
            result = await forked.result(timeout=20)
            assert (result["note"], result["tick"]) == ("as if", 3)
            assert (await engine.status("run")).status is Status.WAITING

    run_async(main())


def test_a_paused_fork_waits_to_be_looked_at(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            await finished(engine)
            forked = engine.get(await engine.admin.fork("run", id="again", at="act", paused=True))
            view = await forked.status()
            assert (view.status, view.reason) == (Status.PAUSED, "paused: forked from 'run'")
            assert await engine.admin.unpause("again")
            await forked.result(timeout=20)

    run_async(main())


def test_the_fork_survives_a_crash_and_a_repeated_call(lives: Lives) -> None:
    """Law 6: forking again under the same id finds the first one; something else under it is a conflict."""

    async def main() -> None:
        async with lives.engine() as engine:
            original = await finished(engine)
        async with lives.engine(worker=False) as client:
            for _ in range(2):
                await client.admin.fork("run", id="again", at="act")
            with pytest.raises(RunConflict):
                await client.admin.fork("run", id="again", at="receive#2", result={"number": 9})
            assert await kinds(client, "again") == (await kinds(client, "run"))[:-2]
        async with lives.engine() as engine:
            assert await engine.result("again", timeout=20) == original
            await engine.admin.fork("run", id="again", at="act")  # and when it has gone on
            with pytest.raises(BadArgument, match="an id of its own"):
                await engine.admin.fork("run", id="run", at="act")

    run_async(main())


def test_an_unknown_location_names_near_ones(lives: Lives) -> None:
    """Bad input: nothing is written."""

    async def main() -> None:
        async with lives.engine() as engine:
            await finished(engine)
            with pytest.raises(UnknownLocation, match=r"at 'qoute'\. Near ones: 'quote'"):
                await engine.admin.fork("run", id="again", at="qoute")
            with pytest.raises(UnknownLocation, match="Near ones"):
                await engine.admin.fork("run", id="again", at="")
            with pytest.raises(BadArgument, match="needs the location"):
                await engine.admin.fork("run", id="again", result=1)
            with pytest.raises(BadArgument, match="generations 1 to 1"):
                await engine.admin.fork("run", id="again", generation=2)
            with pytest.raises(RunNotFound):
                await engine.admin.fork("nobody", id="again")
            with pytest.raises(RunNotFound):
                await engine.status("again")

    run_async(main())


@workflow
async def with_running_child() -> str:
    handle = await start_child(child("slow"))
    await asyncio.sleep(0.001)
    await receive(Note)
    return await handle


def test_a_child_that_was_running_at_that_point_is_refused(lives: Lives) -> None:
    """CONFORMANCE L4: its end would be reported to the original alone, and the fork would wait for ever."""
    outside.hold = {"slow"}

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(with_running_child(), id="run")

            async def slept() -> bool:
                return [wait.kind for wait in (await engine.status("run")).waiting] == ["child", "receive"]

            await until(slept)
            with pytest.raises(ActionRefused, match="the child at 'child' of run 'run' was still running"):
                await engine.admin.fork("run", id="again", at="receive")
            with pytest.raises(ActionRefused, match="no result to edit"):
                await engine.admin.fork("run", id="again", at="sleep", result=1)
            outside.hold = set()
            earlier = engine.get(await engine.admin.fork("run", id="again", at="child"))
            await earlier.send(Note("on"))
            assert await earlier.result(timeout=20) == "slow done"

    run_async(main())


@workflow
async def who_am_i() -> list[Any]:
    return [info().id, info().parent, await act("x")]


@workflow
async def asks() -> list[Any]:
    return await who_am_i()


def test_a_forked_child_stands_alone(lives: Lives) -> None:
    """CONFORMANCE L4: nobody waits for it; the parent of the original hears nothing of its end."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(asks(), id="run")
            await engine.result("run", timeout=20)
            forked = engine.get(await engine.admin.fork("run/who_am_i", id="alone", at="act"))
            assert await forked.result(timeout=20) == ["alone", None, "x done"]

    run_async(main())
