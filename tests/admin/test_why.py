"""`why`: the exact reason a run is not moving, in every situation it can be in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from admin.flows import Outside, reaches
from events.kinds import Note, Stop, Tick
from perdure import Engine, RunNotFound, receive, sleep, step, workflow
from perdure.admin import Reason
from perdure.admin.why import why
from perdure.authoring.registry import Registry
from perdure.types import Status
from stores.store_kit import accept, create, step_row, turn, worker
from support.lives import Lives, run_async, until

outside = Outside()


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()


@step(max_attempts=5, initial_delay=3600, max_delay=3600)
async def act(what: str) -> str:
    return await outside.do(what)


@step(max_attempts=1)
async def once(what: str) -> str:
    return await outside.do(what)


@workflow
async def waits() -> None:
    await receive(Note)


@workflow
async def waits_at_most() -> None:
    await receive(Note, Stop, timeout="2 hours")


@workflow
async def naps() -> None:
    await sleep("30 days")


@workflow
async def works(what: str) -> str:
    return await act(what)


@workflow
async def works_once(what: str) -> str:
    return await once(what)


@workflow
async def parent() -> str:
    return await middle()


@workflow
async def middle() -> str:
    return await works("child")


@workflow
async def cleans_up() -> None:
    try:
        await receive(Note)
    finally:
        await act("cleaning")


@workflow
async def many() -> None:
    await asyncio.gather(*(receive(Note) for _ in range(20)), sleep(7200), act("one"))


async def settled(engine: Engine, run_id: str = "run", kind: str = "") -> None:
    """Until what the run waits for is stored."""

    async def there() -> bool:
        view = await engine.status(run_id)
        return bool(view.waiting) and (not kind or view.waiting[0].kind == kind) and view.status is not Status.PENDING

    await until(there)


async def backing_off(engine: Engine, run_id: str) -> None:
    async def there() -> bool:
        return any(wait.kind == "step" and wait.until for wait in (await engine.status(run_id)).waiting)

    await until(there)


Scene = Callable[[Engine], Awaitable[None]]


async def explained(lives: Lives, scene: Scene, **settings: Any) -> Reason:
    """What `why` says after a scene, asked twice from another process: it must not change anything."""
    async with lives.engine(**settings) as engine:
        await scene(engine)
        async with lives.engine(worker=False) as client:
            before = await client.admin.export_run("run")
            reason = await client.admin.why("run")
            assert await client.admin.why("run") == reason or reason.kind == "step-running"
            assert await client.admin.export_run("run") == before
        await engine.admin.terminate("run")
        outside.hold = set()
        return reason


def test_an_event(lives: Lives) -> None:
    """Situation 1: which one, where, since when."""

    async def scene(engine: Engine) -> None:
        await engine.start(waits(), id="run")
        await engine.send("run", Tick(1))
        await settled(engine)

    reason = run_async(explained(lives, scene))
    assert (reason.kind, reason.location) == ("event", "receive")
    assert reason.text.startswith("it waits for the event 'tests.note' at 'receive' (test_why.py:")
    assert "since 20" in reason.text
    assert "1 unread events of type 'tests.tick', which it does not ask for" in reason.also


def test_an_event_with_a_deadline(lives: Lives) -> None:
    """Situation 1: and until when."""

    async def scene(engine: Engine) -> None:
        await engine.start(waits_at_most(), id="run")
        await settled(engine)

    reason = run_async(explained(lives, scene))
    assert reason.kind == "event"
    assert "'tests.note' or 'tests.stop'" in reason.text
    assert "at most until 20" in reason.text
    assert reason.until is not None


def test_asleep(lives: Lives) -> None:
    """Situation 2"""

    async def scene(engine: Engine) -> None:
        await engine.start(naps(), id="run")
        await settled(engine)

    reason = run_async(explained(lives, scene))
    assert reason.kind == "sleep"
    assert reason.text.startswith("it is asleep at 'sleep' (test_why.py:")
    assert reason.until is not None
    assert reason.since is not None
    assert (reason.until - reason.since).days == 30


def test_a_step_in_a_backoff(lives: Lives) -> None:
    """Situation 3: until when, after how many attempts, with which error, and what to do."""
    outside.broken = {"x"}

    async def scene(engine: Engine) -> None:
        await engine.start(works("x"), id="run")
        await backing_off(engine, "run")

    reason = run_async(explained(lives, scene))
    assert reason.kind == "step-backoff"
    assert "step 'act' (test_why.py:" in reason.text
    assert "after 1 failed attempt with ConnectionError: x is broken" in reason.text
    assert "`perdure retry run`" in reason.text
    assert reason.until is not None


def test_a_step_that_is_running(lives: Lives) -> None:
    """Situation 4: for how long, on which worker."""
    outside.hold = {"x"}

    async def scene(engine: Engine) -> None:
        await engine.start(works("x"), id="run")
        await until(lambda: outside.done["x"] == 1)

    reason = run_async(explained(lives, scene, name="north"))
    assert reason.kind == "step-running"
    assert "has been running, or waiting for a place there, for 0:00:0" in reason.text
    assert "on worker 'north' (pid " in reason.text


def test_a_child_and_its_child(lives: Lives) -> None:
    """Situation 5: down to the one that does not move."""
    outside.broken = {"child"}

    async def scene(engine: Engine) -> None:
        await engine.start(parent(), id="run")
        await until(lambda: outside.done["child"] == 1)
        await backing_off(engine, "run/middle/works")

    reason = run_async(explained(lives, scene))
    assert reason.kind == "child"
    assert reason.child is not None
    assert reason.child.child is not None
    assert reason.child.child.kind == "step-backoff"
    assert "waits for the child 'run/middle' at 'middle'" in reason.text
    assert "waits for the child 'run/middle/works'" in reason.text
    assert "x is broken" not in reason.text
    assert "child is broken" in reason.text


def test_a_child_that_is_parked_or_gone(lives: Lives) -> None:
    """Situation 5"""
    outside.hold = {"child"}

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(middle(), id="run")
            await until(lambda: outside.done["child"] == 1)
            row = await engine.store.get("run/works")
            assert row is not None
            assert await engine.store.park(row.key, row.epoch, "Diverged: it changed", 1)
            reason = await engine.admin.why("run")
            assert "which does not move: parked since" in reason.text
            assert reason.child is not None
            assert reason.child.kind == "parked-diverged"
            outside.hold = set()

    run_async(main())


def test_no_worker_knows_the_workflow(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Situation 6: name and version."""

    async def main() -> None:
        async with lives.engine(worker=False) as client:
            await client.start(waits(), id="run")
            async with lives.engine(registry=Registry(), name="north"):

                async def noticed() -> bool:
                    return (await client.status("run")).reason is not None

                await until(noticed)
                reason = await client.admin.why("run")
        assert reason.kind == "unknown-workflow"
        assert reason.text.startswith("no living worker knows workflow 'waits' version '1'; worker 'north' (pid ")
        assert reason.text.endswith(
            "runs nothing. Start one that does: `perdure worker --app ...`, or register that version again."
        )

    run_async(main())


@pytest.mark.parametrize("alive", [True, False])
def test_no_worker_knows_the_workflow_of_a_run_that_waited(
    lives: Lives, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    """Situation 6: not what its code once waited for, which nobody has; whether a worker is there or none."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(waits(), id="run")
            await settled(engine)
        async with lives.engine(worker=False) as client:
            await client.send("run", Note("x"))
            async with lives.engine(registry=Registry()):

                async def noticed() -> bool:
                    return (await client.status("run")).reason is not None

                await until(noticed)
                reason = await client.admin.why("run")
            if not alive:
                reason = await client.admin.why("run")
            assert (await client.status("run")).waiting[0].kind == "receive"
        assert reason.kind == "unknown-workflow"
        who = "no living worker knows" if alive else "no worker knows"
        assert reason.text.startswith(f"{who} workflow 'waits' version '1'")
        assert (", and none is alive now. Start one that does: " in reason.text) is not alive

    run_async(main())


def test_no_worker_is_alive(lives: Lives) -> None:
    """Situation 7: a run that is due; and one whose worker died at work."""
    outside.hold = {"x"}

    async def main() -> None:
        async with lives.engine(worker=False) as client:
            await client.start(waits(), id="run")
            reason = await client.admin.why("run")
            assert reason.kind == "no-worker"
            assert reason.text.startswith("no worker is alive, and it has been due since 20")
        engine = lives.engine()
        await engine.open()
        await engine.start(works("x"), id="busy")
        await until(lambda: outside.done["x"] == 1)
        await settled(engine, "run")
        await lives.crash(engine)
        async with lives.engine(worker=False) as client:
            assert (await client.admin.why("busy")).kind == "no-worker"
            assert "no worker is alive" in (await client.admin.why("run")).also
        outside.hold = set()

    run_async(main())


def test_its_worker_died_and_others_are_there(lives: Lives) -> None:
    """Situation 7: until their next sweep."""
    outside.hold = {"x"}

    async def main() -> None:
        engine, other = lives.engine(), lives.engine(sweep_interval=30)
        await engine.open()
        await engine.start(works("x"), id="run")
        await until(lambda: outside.done["x"] == 1)
        await other.open()
        assert other.parts is not None
        assert other.parts.sweeper is not None
        other.parts.sweeper.cancel()
        await lives.crash(engine)
        reason = await other.admin.why("run")
        outside.hold = set()
        await other.abandon()
        assert reason.kind == "worker-died"

    run_async(main())


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Diverged: run 'run' no longer matches its journal [P-101]", "parked-diverged"),
        ("poisoned: the worker died 11 times in a row", "parked-poisoned"),
        ("NotDecodable: the result of step 'x' [P-211]", "parked-undecodable"),
        ("CorruptRecord: record 3 is missing [P-306]", "parked-undecodable"),
        ("Stuck: run 'run' waits for something [P-106]", "parked-stuck"),
        ("Spinning: run 'run' ran on and on [P-105]", "parked-spinning"),
        ("RuntimeError: surprise", "parked-other"),
    ],
)
def test_parked_with_each_kind_of_reason(lives: Lives, reason: str, kind: str) -> None:
    """Situation 8: the whole report, and the way out."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(waits(), id="run")
            row = await engine.store.get("run")
            assert row is not None
            assert await engine.store.park(row.key, row.epoch, reason, row.updated_at)
            found = await engine.admin.why("run")
            assert found.kind == kind
            assert reason in found.text
            assert "`perdure resume run`" in found.text

    run_async(main())


@workflow
async def stuck() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(("name", "kind"), [("waits", "undecodable"), ("stuck", "stuck"), ("works", "undecodable")])
def test_parked_by_what_really_happens(lives: Lives, name: str, kind: str) -> None:
    """Situation 8: the words of the engine's own reasons, not only those of this test."""

    async def main() -> None:
        async with lives.engine(worker=False) as client:
            store = client.store
            if kind == "undecodable":  # an input that does not fit the code
                await create(store, "run", owner=None, workflow=name)
            else:
                await client.start(stuck(), id="run")
        async with lives.engine() as engine:
            await reaches(engine, "run", Status.PARKED)
            assert (await engine.admin.why("run")).kind == f"parked-{kind}"

    run_async(main())


def test_paused(lives: Lives) -> None:
    """Situation 9: by whom."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(waits(), id="run")
            await engine.admin.pause("run", by="ann")
            reason = await engine.admin.why("run")
            assert reason.kind == "paused"
            assert reason.text.startswith("paused by ann, since 20")
            assert "`perdure unpause run`" in reason.text

    run_async(main())


def test_pending_and_due(lives: Lives) -> None:
    """Situation 10: workers are there, and have not taken it yet."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert engine.parts is not None
            assert engine.parts.sweeper is not None
            engine.parts.sweeper.cancel()
            async with lives.engine(worker=False) as client:
                await client.start(waits(), id="run")
                reason = await client.admin.why("run")
        assert reason.kind == "due"
        assert "waits for one of 1 workers" in reason.text

    run_async(main())


def test_suspected_and_on_probation(lives: Lives) -> None:
    """Its workers died again and again: it waits for its turn to be tried, or is being tried; with the number."""

    async def main() -> None:
        async with lives.engine(worker=False) as client:
            await client.start(in_a_step(), id="run")
            for deaths in range(1, 4):
                async with lives.engine(sweep_interval=0.01) as engine:

                    async def runs(engine: Engine = engine) -> bool:
                        return (await engine.admin.why("run")).kind == "step-running"

                    await until(runs)
                    notes = (await engine.admin.why("run")).also
                    probation = f"it is on probation: its workers died {deaths - 1} times in a row before"
                    assert any(note.startswith(probation) for note in notes) is (deaths > 2)
                    await lives.crash(engine)
            async with lives.engine() as engine:
                assert engine.parts is not None
                assert engine.parts.sweeper is not None
                engine.parts.sweeper.cancel()
                await engine.store.reap(engine.worker.id, 0)  # type: ignore[union-attr]
                reason = await client.admin.why("run")
        assert reason.kind == "suspect"
        assert reason.text.startswith("its workers died 3 times in a row without its making progress")

    run_async(main())


@step
async def without_end() -> None:
    await asyncio.Event().wait()


@workflow
async def in_a_step() -> None:
    await without_end()


def test_evicted(lives: Lives) -> None:
    """Situation 11: not in anybody's memory until its deadline, or until something arrives."""

    async def scene(engine: Engine) -> None:
        await engine.start(naps(), id="run")
        await settled(engine)
        for number in range(3):
            await engine.start(waits(), id=f"other-{number}")

        async def evicted() -> bool:
            row = await engine.store.get("run")
            return row is not None and row.owner is None

        await until(evicted)

    reason = run_async(explained(lives, scene, residents_max=1))
    assert reason.kind == "sleep"
    assert any(note.startswith("no worker has it in memory until 20") for note in reason.also)


def test_cancelling(lives: Lives) -> None:
    """Situation 12: cleaning up, what with, until when."""
    outside.broken = {"cleaning"}

    async def scene(engine: Engine) -> None:
        await engine.start(cleans_up(), id="run")
        await settled(engine)
        await engine.cancel("run")
        await backing_off(engine, "run")

    reason = run_async(explained(lives, scene))
    assert reason.kind == "cancelling"
    assert reason.text.startswith("it was asked to cancel, and may clean up until 20")
    assert "cleaning is broken" in reason.text


def test_cancelling_but_not_seen_yet(lives: Lives) -> None:
    """Situation 12"""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(waits(), id="run")
            await settled(engine)
        async with lives.engine(worker=False) as client:
            await client.cancel("run")
            reason = await client.admin.why("run")
            assert reason.kind == "cancelling"
            assert "has not seen that yet" in reason.text
            assert "no worker is alive" in reason.also

    run_async(main())


def test_finished(lives: Lives) -> None:
    """Situation 13: how, and when."""
    outside.broken = {"bad"}

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(works_once("good"), id="good")
            await engine.start(works_once("bad"), id="bad")
            await engine.start(waits(), id="ended")
            await engine.admin.terminate("ended", "enough")
            await reaches(engine, "good", "completed")
            await reaches(engine, "bad", "failed")
            good, bad, ended = [await engine.admin.why(run_id) for run_id in ("good", "bad", "ended")]
            with pytest.raises(RunNotFound):
                await engine.admin.why("nobody")
        assert (good.kind, bad.kind, ended.kind) == ("completed", "failed", "cancelled")
        assert "completed at 20" in good.text
        assert "with ConnectionError: bad is broken. `perdure resume bad`" in bad.text
        assert "terminated: enough" in ended.text

    run_async(main())


def test_several_things_at_once(lives: Lives) -> None:
    """The one that says most first; the others are counted."""
    outside.hold = {"one"}

    async def scene(engine: Engine) -> None:
        await engine.start(many(), id="run")
        await until(lambda: outside.done["one"] == 1)

    reason = run_async(explained(lives, scene))
    assert reason.kind in ("step-running", "event")
    assert any("more operations" in note for note in reason.also)


def test_a_damaged_run_is_explained_as_far_as_it_goes(lives: Lives) -> None:
    """FAULTS B10: a frontier nobody can read does not make `why` fail."""

    async def main() -> None:
        store = lives.store()
        await store.open()
        key = await create(store, "run", owner=None)
        (row,) = await store.claim("w", 10, 1)
        await store.register_worker(worker("w"))
        shown = {"frontier": b"\0", "status": Status.WAITING, "worker": "w"}
        await accept(store, turn(key, 2, step_row(2), epoch=row.epoch, **shown))
        assert (await why(store, "run", 10)).kind == "nothing"
        await store.close()

    run_async(main())
