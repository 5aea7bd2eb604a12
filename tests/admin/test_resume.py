"""`resume` after a failure: what failed is tried again, the rest stands; where that cannot be, it is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from admin.flows import Outside, kinds, reaches
from events.kinds import Note
from lifecycle.moved_clock import MovedClock
from perdure import Engine, RunFailed, RunNotFound, patched, receive, start_child, step, workflow
from perdure.errors import ActionRefused
from perdure.store.model import Reopen
from perdure.types import Status
from support.faulty_stores import Call, DisturbedStore
from support.lives import Lives, run_async, until

outside = Outside()


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()


@step(max_attempts=2, initial_delay=0.001)
async def act(what: str) -> str:
    return await outside.do(what)


@step(max_attempts=1, total_timeout=60)
async def act_in_time(what: str) -> str:
    return await outside.do(what)


@workflow
async def plain() -> list[str]:
    return [await act("a"), await act("b"), await act_in_time("c")]


@workflow
async def refunding() -> str:
    paid = await act("charge")
    try:
        return await act("ship")
    except ConnectionError:
        await act("refund")
        raise
    finally:
        del paid


@workflow
async def together() -> list[str]:
    async def one(what: str) -> str:
        return await act(what)

    results = await asyncio.gather(one("a"), one("b"), one("c"), return_exceptions=True)
    errors = [error for error in results if isinstance(error, Exception)]
    if errors:
        raise ExceptionGroup("some failed", errors)
    return [str(result) for result in results]


class OrderFailed(Exception):
    pass


@workflow
async def wrapping(how: str) -> str:
    try:
        return await act("inner")
    except ConnectionError as error:
        if how == "from":
            raise OrderFailed("wrapped") from error
        raise OrderFailed("wrapped")  # noqa: B904


@workflow
async def falling_back() -> str:
    try:
        return await act("first")
    except ConnectionError:
        return await act("second")


@workflow
async def child(what: str) -> str:
    return await act(what)


@workflow
async def parent() -> str:
    return f"parent of {await child('kid')}"


@workflow
async def grandparent() -> str:
    return f"grand{await parent()}"


@workflow
async def forgiving_parent() -> str:
    try:
        return await child("kid")
    except Exception:
        await receive(Note)
        return "forgiven"


@workflow
async def hears_a_note() -> str:
    return (await receive(Note)).text


@workflow
async def parent_of_two() -> list[str]:
    other = await start_child(child("slow"))
    return [await act("own"), await other]


async def fails(engine: Engine, invocation: Any, run_id: str = "run") -> None:
    await engine.start(invocation, id=run_id)
    with pytest.raises(RunFailed):
        await engine.result(run_id, timeout=20)


def test_a_failed_run_goes_on_from_its_last_good_record(lives: Lives) -> None:
    """CONFORMANCE L4: recorded results stand, the failed step has all its attempts again, the journal keeps it all."""
    outside.broken = {"b"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, plain())
            assert outside.done == {"a": 1, "b": 2}
            before = await kinds(engine, "run")
            assert await engine.admin.resume("run")
            with pytest.raises(RunFailed):  # nothing was fixed
                await engine.result("run", timeout=20)
            assert outside.done == {"a": 1, "b": 4}, "two more attempts, not one"
            outside.broken = set()
            assert await engine.admin.resume("run")
            assert await engine.result("run", timeout=20) == ["a done", "b done", "c done"]
            view = await engine.status("run")
            after = await kinds(engine, "run")
        assert outside.done == {"a": 1, "b": 5, "c": 1}
        assert (view.status, view.waiting_count) == (Status.COMPLETED, 0)
        assert after[: len(before)] == before, "the journal is append-only"
        assert after.count("resumed") == 2
        assert after[-1] == "completed"

    run_async(main())


def test_a_resumed_run_survives_a_crash_anywhere(lives: Lives) -> None:
    """CONFORMANCE L4: replays pass over what was taken back, in every later life."""
    outside.broken = {"b"}

    async def act_out(engine: Engine) -> Any:
        return await engine.result("run", timeout=20)

    async def main() -> None:
        for limit in range(1, 5):
            own = lives.fresh()
            outside.reset()
            outside.broken = {"b"}
            async with own.engine() as engine:
                await fails(engine, plain())
            async with own.engine(worker=False) as client:
                assert await client.admin.resume("run")
            outside.broken = set()
            await own.live_until(limit, act_out)
            async with own.engine() as engine:
                assert await engine.result("run", timeout=20) == ["a done", "b done", "c done"]
            assert outside.done["a"] == 1

    run_async(main())


def test_a_bug_in_the_workflow_itself_can_be_fixed(lives: Lives) -> None:
    """CONFORMANCE L4, V3: without a failed step only the end is taken back, and fixed code may even be patched."""

    def deploy(fixed: bool) -> Any:
        @workflow(name="buggy")
        async def buggy() -> list[str]:
            done = [await act("a")]
            if fixed and patched("divide-safely"):
                done.append(await act("safe"))
            else:
                done.append(str(1 / 0))
            return done

        return buggy

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, deploy(False)())
        deploy(True)
        async with lives.engine() as engine:
            assert await engine.admin.resume("run")
            assert await engine.result("run", timeout=20) == ["a done", "safe done"]
        assert outside.done == {"a": 1, "safe": 1}

    run_async(main())


def test_work_done_after_the_failure_is_not_taken_back(lives: Lives) -> None:
    """CONFORMANCE L4: a refund was paid out; delivering after all would be wrong, so it is refused. Nothing changes."""
    outside.broken = {"ship"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, refunding())
            before = await kinds(engine, "run")
            outside.broken = set()
            with pytest.raises(ActionRefused, match=r"step_done at 'act#3' \(record \d+\).*perdure fork run"):
                await engine.admin.resume("run")
            assert (await engine.status("run")).status is Status.FAILED
            assert await kinds(engine, "run") == before
        assert outside.done == {"charge": 1, "ship": 2, "refund": 1}

    run_async(main())


def test_without_the_code_it_is_refused_only_where_the_code_must_decide(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFORMANCE L4: from another process, which knows no workflow."""
    from perdure.authoring.registry import Registry

    outside.broken = {"ship", "b"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, refunding(), "refunded")
            await fails(engine, plain(), "plain")
        async with lives.engine(worker=False, registry=Registry()) as client:
            with pytest.raises(ActionRefused, match="--app"):
                await client.admin.resume("refunded")
            assert await client.admin.resume("plain")
        outside.broken = set()
        async with lives.engine() as engine:
            assert len(await engine.result("plain", timeout=20)) == 3

    run_async(main())


def test_of_several_failures_at_once_all_are_tried_again(lives: Lives) -> None:
    """CONFORMANCE L4: the members of a group each, and what succeeded between them stands."""
    outside.broken = {"a", "c"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, together())
            outside.broken = set()
            assert await engine.admin.resume("run")
            assert await engine.result("run", timeout=20) == ["a done", "b done", "c done"]
        assert outside.done == {"a": 3, "b": 1, "c": 3}

    run_async(main())


@pytest.mark.parametrize("how", ["from", "during"])
def test_a_failure_wrapped_in_another_error_is_found(lives: Lives, how: str) -> None:
    """CONFORMANCE L4: by its cause, or by what it was raised in."""
    outside.broken = {"inner"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, wrapping(how))
            outside.broken = set()
            assert await engine.admin.resume("run")
            assert await engine.result("run", timeout=20) == "inner done"
        assert outside.done == {"inner": 3}

    run_async(main())


def test_a_failure_that_the_code_handled_stays_handled(lives: Lives) -> None:
    """CONFORMANCE L4: only what the run failed of is tried again, not what it had already dealt with."""
    outside.broken = {"first", "second"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, falling_back())
            outside.broken = set()
            assert await engine.admin.resume("run")
            assert await engine.result("run", timeout=20) == "second done"
        assert outside.done == {"first": 2, "second": 3}

    run_async(main())


def test_a_parent_goes_on_together_with_the_child_that_made_it_fail(lives: Lives) -> None:
    """CONFORMANCE L4, C7: three deep, over a restart."""
    outside.broken = {"kid"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, grandparent())
        outside.broken = set()
        async with lives.engine(worker=False) as client:
            assert await client.admin.resume("run")
            assert not await client.admin.resume("run"), "it goes on already"
        async with lives.engine() as engine:
            assert await engine.result("run", timeout=20) == "grandparent of kid done"
            assert {view.status for view in await engine.list()} == {Status.COMPLETED}
        assert outside.done == {"kid": 3}

    run_async(main())


def test_a_child_whose_parent_has_been_told_is_refused(lives: Lives) -> None:
    """CONFORMANCE L4: the parent has gone on, or failed of it: then that one is to be resumed."""
    outside.broken = {"kid"}

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(forgiving_parent(), id="kind")

            async def told() -> bool:
                return [wait.kind for wait in (await engine.status("kind")).waiting] == ["receive"]

            await until(told)
            with pytest.raises(ActionRefused, match=r"'kind' of run 'kind/child' has been told .* gone on"):
                await engine.admin.resume("kind/child")
            await fails(engine, parent(), "strict")
            with pytest.raises(ActionRefused, match="`perdure resume strict` resumes both"):
                await engine.admin.resume("strict/child")
            assert (await engine.status("strict/child")).status is Status.FAILED

    run_async(main())


def test_a_child_whose_failure_was_not_read_yet_is_taken_back_in_silence(lives: Lives) -> None:
    """CONFORMANCE L4: the unread notice leaves the parent's inbox in the same change; the parent hears of one end."""
    outside.broken = {"kid"}
    outside.hold = {"kid"}

    async def main() -> None:
        engine = lives.engine()
        await engine.open()
        await engine.start(parent(), id="run")
        await until(lambda: outside.done["kid"] == 1)
        assert await engine.admin.pause("run")
        outside.hold = set()
        await reaches(engine, "run/child", Status.FAILED)
        assert await engine.admin.resume("run/child")
        outside.broken = set()
        await reaches(engine, "run/child", Status.COMPLETED)
        assert await engine.admin.unpause("run")
        assert await engine.result("run", timeout=20) == "parent of kid done"
        await engine.close()

    run_async(main())


def test_a_parent_whose_other_child_was_cancelled_is_refused(lives: Lives) -> None:
    """CONFORMANCE L4: the cancelled child cannot go on, and nobody would ever end the wait for it."""
    outside.broken = {"own"}
    outside.hold = {"slow"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, parent_of_two())
            await reaches(engine, "run/child", Status.CANCELLED)
            outside.broken = set()
            with pytest.raises(ActionRefused, match="'run/child' of run 'run' was cancelled"):
                await engine.admin.resume("run")

    run_async(main())


@workflow
async def child_first() -> list[str]:
    other = await start_child(child("quick"))
    await act("between")
    return [await act("own"), await other]


def test_a_child_that_ended_before_the_failure_is_not_lost(lives: Lives) -> None:
    """CONFORMANCE L4: its end was recorded, or lies unread; the resumed parent has it either way."""

    async def main() -> None:
        outside.broken, outside.hold = {"own"}, {"between"}
        async with lives.engine() as engine:
            await engine.start(child_first(), id="run")
            await reaches(engine, "run/child", Status.COMPLETED)
            outside.hold = set()
            with pytest.raises(RunFailed):
                await engine.result("run", timeout=20)
            outside.broken = set()
            assert await engine.admin.resume("run")
            assert await engine.result("run", timeout=20) == ["own done", "quick done"]
        assert outside.done == {"quick": 1, "between": 1, "own": 3}

    run_async(main())


@pytest.mark.parametrize("ending", ["completed", "cancelled", "paused"])
def test_what_has_not_failed_is_refused_with_the_reason(lives: Lives, ending: str) -> None:
    """Only what has failed or is parked can be resumed; the caller hears why not. CONFORMANCE L4."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(hears_a_note() if ending != "completed" else plain(), id="run")
            if ending == "cancelled":
                await engine.admin.terminate("run")
            elif ending == "paused":
                await engine.admin.pause("run")
            await reaches(engine, "run", ending)
            with pytest.raises(ActionRefused, match=ending):
                await engine.admin.resume("run")
            with pytest.raises(RunNotFound):
                await engine.admin.resume("nobody")

    run_async(main())


def test_the_store_takes_a_reopening_once(lives: Lives) -> None:
    """Law 6: a repeat after a lost answer, and a decision made on an old state, change nothing."""
    outside.broken = {"b"}

    async def main() -> None:
        async with lives.engine() as engine:
            await fails(engine, plain())
        reopened: list[Reopen] = []
        real = lives.store()
        store = DisturbedStore(real)

        async def do_it_first(call: Call) -> None:
            """An answer that got lost: the store is asked for what it has done."""
            reopened.append(call.args[0])
            assert await real.reopen(call.args[0])

        store.before("reopen", do_it_first)
        async with Engine(store, worker=False) as client:
            assert await client.admin.resume("run")
            assert not await real.reopen(reopened[0])
            assert (await kinds(client, "run")).count("resumed") == 1

    run_async(main())


def test_a_step_that_is_tried_again_has_all_of_its_time(lives: Lives) -> None:
    """CONFORMANCE L4, S3: `total_timeout` counts from the resuming, not from a day before it; also over a crash."""
    outside.broken = {"c"}

    async def main() -> None:
        clock = MovedClock()
        engine = lives.engine(clock=clock)
        await engine.open()
        await fails(engine, plain())
        clock.move(86_400)
        outside.broken, outside.hold = set(), {"c"}
        assert await engine.admin.resume("run")
        await until(lambda: outside.done["c"] == 2)
        await lives.crash(engine)
        async with lives.engine(clock=clock) as later:
            outside.hold = set()
            assert await later.result("run", timeout=20) == ["a done", "b done", "c done"]

    run_async(main())
