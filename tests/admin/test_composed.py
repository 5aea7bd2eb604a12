"""What people do to runs that loop, undo, publish, ask and wait for others: nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest

from admin.flows import Outside, reaches
from events.kinds import Note
from events.published_kinds import Job, News, Rule, collect, name_of, waiting_for
from perdure import Break, Engine, RunFailed, RunNotFound, loop, receive, saga, step, wait_for_run, workflow
from perdure.errors import ActionRefused, UnknownLocation
from perdure.types import Status
from support.lives import Lives, run_async, until

outside = Outside()


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()


@step(max_attempts=5, initial_delay=3600, max_delay=3600)
async def patiently(what: str) -> str:
    return await outside.do(what)


@step(max_attempts=1)
async def once(what: str) -> str:
    return await outside.do(what)


@workflow
async def polling(times: int, keep: int = 1, commit_every: int = 1) -> list[int]:
    """Loops until it is told to go on, then ends."""

    async def poll(seen: list[int]) -> list[int] | Break[list[int]]:
        number = len(seen) + 1
        await once(f"poll {number}")
        if number > times:
            note = await receive(Note)
            return Break([*seen, len(note.text)])
        return [*seen, number]

    return await loop(poll, list[int](), name="poll", keep=keep, commit_every=commit_every)


@workflow
async def booking(name: str) -> str:
    try:
        async with saga() as undo:
            await undo.do(once, "book", undo=patiently)
            await undo.do(once, name)
    except ConnectionError:
        return "undone"
    return "done"


@workflow
async def repeating() -> str:
    async def turn() -> Break[str]:
        return Break(await patiently("turn"))

    return await loop(turn)


@workflow
async def following(run_id: str) -> Any:
    return await wait_for_run(run_id)


@workflow
async def failing_once() -> list[str]:
    """Fails after its first note, with a second one unread."""
    first = await receive(Note)
    await once("between")
    return [first.text, (await receive(Note)).text]


async def waits_for_note(engine: Engine, run_id: str) -> None:
    await waiting_for(engine, Note, run_id)


# -- loops ---------------------------------------------------------------------------------------------------


def test_a_run_in_a_loop_is_exported_with_its_gaps_and_goes_on(lives: Lives) -> None:
    """CONFORMANCE L4, C4: deleted iterations stay deleted, the rest goes on; `check` finds nothing wrong."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(polling(20), id="run")
            await waits_for_note(engine, "run")
            view = await engine.status("run")
            assert view.pruned > 0
            assert [(one.id, one.verdict) async for one in engine.admin.check()] == [("run", "fine")]
            data = await engine.admin.export_run("run")
        done = dict(outside.done)
        async with lives.fresh().engine() as engine:
            await engine.admin.import_run(data)
            assert (await engine.status("run")).pruned == view.pruned
            await engine.admin.unpause("run")
            await engine.send("run", Note("abc"))
            assert await engine.result("run", timeout=20) == [*range(1, 21), 3]
        assert dict(outside.done) == done, "no iteration was repeated"

    run_async(main())


def test_a_fork_goes_back_as_far_as_the_journal_does(lives: Lives) -> None:
    """CONFORMANCE L4: into an iteration that is kept; not into one that is deleted, nor where no state is left to begin
    from."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(polling(10, keep=3), id="run")
            await engine.start(polling(10, commit_every=4), id="rare")
            for run_id in ("run", "rare"):
                await waits_for_note(engine, run_id)
            before = outside.done.copy()
            fork = engine.get(await engine.admin.fork("run", id="fork", at="poll~10/once"))
            await engine.send("fork", Note("abcd"))
            assert await fork.result(timeout=20) == [*range(1, 11), 4]
            assert outside.done - before == {"poll 10": 1, "poll 11": 1}
            fork = engine.get(await engine.admin.fork("run", id="edited", at="poll~11/receive", result=Note("by hand")))
            assert await fork.result(timeout=20) == [*range(1, 11), 7]
            with pytest.raises(UnknownLocation, match="finished iterations of loops are deleted"):
                await engine.admin.fork("run", at="poll~2/once")
            oldest = next(one.location for one in await engine.admin.history("rare") if one.location.endswith("/once"))
            assert oldest == "poll~8/once"
            with pytest.raises(ActionRefused, match="whose oldest state that is left comes later"):
                await engine.admin.fork("rare", at=oldest)
            again = engine.get(await engine.admin.fork("rare", id="again"))
            await engine.send("again", Note(""))
            assert await again.result(timeout=20) == [*range(1, 11), 0]

    run_async(main())


@pytest.mark.parametrize("which", ["loop", "saga"])
def test_steps_of_loops_and_sagas_are_paused_and_retried_like_others(lives: Lives, which: str) -> None:
    """CONFORMANCE L4: a backoff inside a loop, and that of a compensation."""

    async def main() -> None:
        outside.broken = {"turn", "book done", "ship"}
        async with lives.engine() as engine:
            run = await engine.start(repeating() if which == "loop" else booking("ship"), id="run")

            async def backing_off() -> bool:
                return (await engine.admin.why("run")).kind == "step-backoff"

            await until(backing_off)
            await engine.admin.pause("run", "ann")
            await reaches(engine, "run", Status.PAUSED)
            with pytest.raises(ActionRefused, match="paused"):
                await engine.admin.retry("run")
            await engine.admin.unpause("run")
            await until(backing_off)
            outside.broken.clear()
            await engine.admin.retry("run")
            assert await run.result(timeout=20) == ("turn done" if which == "loop" else "undone")

    run_async(main())


# -- events --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Job, News])
def test_a_run_that_was_imported_while_it_waits_is_found_by_publish(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E6, L4: its new store learns what it waits for when the run is first loaded."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(collect(name_of(kind), 1), id="run")
            await waiting_for(engine, kind, "run")
            data = await engine.admin.export_run("run")
        async with lives.fresh().engine() as engine:
            await engine.admin.import_run(data)
            await engine.admin.unpause("run")
            await engine.publish(kind(7))
            assert await engine.result("run", timeout=20) == [7]

    run_async(main())


def test_a_copy_does_not_get_a_second_time_what_it_has_had(lives: Lives) -> None:
    """CONFORMANCE E6, L4: a fork has in its journal and inbox what the original received, and the log begins anew."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(collect(name_of(Rule), 3), id="run")
            for number in (1, 2):
                await engine.publish(Rule(number))
            await waiting_for(engine, Rule, "run")

            async def read() -> bool:
                return len(await engine.admin.history("run")) == 3

            await until(read)
            await engine.admin.fork("run", id="late", at="receive#2")
            await engine.admin.fork("run", id="early")
            for run_id in ("late", "early"):

                async def read_again(run_id: str = run_id) -> bool:
                    return len(await engine.admin.history(run_id)) == 3

                await until(read_again)
            await engine.publish(Rule(3))
            for run_id in ("run", "late", "early"):
                assert await engine.result(run_id, timeout=20) == [1, 2, 3], run_id

    run_async(main())


def test_a_resumed_run_has_the_events_it_had_not_read(lives: Lives) -> None:
    """CONFORMANCE E5, L4: they were dead letters while it had failed."""

    async def main() -> None:
        outside.broken.add("between")
        async with lives.engine() as engine:
            run = await engine.start(failing_once(), id="run")
            outside.hold.add("between")
            await run.send(Note("one"))
            await until(lambda: outside.done["between"] == 1)
            await run.send(Note("two"))
            outside.hold.clear()
            with pytest.raises(RunFailed):
                await run.result(timeout=20)
            assert [letter.target for letter in await engine.admin.dead_letters()] == ["run"]
            outside.broken.clear()
            await engine.admin.resume("run")
            assert await run.result(timeout=20) == ["one", "two"]
            assert await engine.admin.dead_letters() == []

    run_async(main())


# -- other runs ----------------------------------------------------------------------------------------------


def test_why_names_the_run_that_is_waited_for(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(polling(0), id="leader")
            await engine.start(following("leader"), id="follower")
            await waits_for_note(engine, "leader")

            async def follows() -> bool:
                return (await engine.admin.why("follower")).kind == "run"

            await until(follows)
            reason = await engine.admin.why("follower")
            assert "waits for the end of run 'leader'" in reason.text
            assert reason.child is not None
            assert (reason.child.run_id, reason.child.kind) == ("leader", "event")

    run_async(main())


def test_a_copy_of_a_run_that_waits_for_another_hears_of_its_end(lives: Lives) -> None:
    """CONFORMANCE L4: forked beside it, or imported where the other run ends later, has ended, or never was."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(polling(0), id="leader")
            await engine.start(following("leader"), id="follower")
            await waits_for_note(engine, "leader")
            await reaches(engine, "follower", Status.WAITING)
            data = await engine.admin.export_run("follower")
            await engine.admin.fork("follower", id="fork", at="wait_for_run")
            await engine.admin.import_run(data, id="copy")
            await engine.admin.unpause("copy")
            for run_id in ("fork", "copy"):
                await reaches(engine, run_id, Status.WAITING)
            await engine.send("leader", Note("ab"))
            for run_id in ("follower", "fork", "copy"):
                assert await engine.result(run_id, timeout=20) == [2], run_id
            await engine.admin.import_run(data, id="late")
            await engine.admin.unpause("late")
            assert await engine.result("late", timeout=20) == [2]
        async with lives.fresh().engine() as engine:
            await engine.admin.import_run(data)
            await engine.admin.unpause("follower")
            with pytest.raises(RunFailed) as failed:
                await engine.result("follower", timeout=20)
            assert isinstance(failed.value.__cause__, RunNotFound)

    run_async(main())
