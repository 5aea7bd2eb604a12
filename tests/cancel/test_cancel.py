"""Cancelling a run in each of its states: it ends as cancelled, once, and nothing late changes that."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import pytest

from perdure import (
    Engine,
    RunCancelled,
    RunFinished,
    RunHandle,
    RunNotFound,
    event,
    info,
    receive,
    sleep,
    step,
    workflow,
)
from perdure.store.model import Status
from support.lives import Lives, run_async, until

did: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def fresh() -> None:
    did.clear()
    gates.clear()


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


@event
@dataclass
class GoOnCancel:
    text: str = ""


@step
async def noted(what: str) -> str:
    did.append(what)
    return what


@step
async def held(what: str) -> str:
    did.append(f"{what} began")
    try:
        await gate(what).wait()
    except asyncio.CancelledError:
        did.append(f"{what} cancelled")
        raise
    did.append(f"{what} ended")
    return what


async def ended(handle: RunHandle[object], reason: str = "") -> list[str]:
    """Wait for the end as cancelled; the kinds of its records."""
    with pytest.raises(RunCancelled, match=reason or None):
        await handle.result(timeout=10)
    view = await handle.status()
    assert view.status is Status.CANCELLED
    assert view.cancel_requested
    assert view.finished_at is not None
    assert view.wake_at is None
    return [entry.kind for entry in await handle._engine.admin.history(handle.id)]


@workflow
async def cancel_in_step(what: str) -> str:
    await noted("first")
    return await held(what)


@workflow
async def cancel_waiting(how: str) -> str:
    if how == "event":
        return (await receive(GoOnCancel)).text
    await sleep("1 day")
    return "slept"


@workflow
async def cancel_with_cleanup(grace: str = "") -> str:
    try:
        await held("work")
    finally:
        did.append(f"requested: {info().cancel_requested}")
        await noted("cleanup 1")
        if grace:
            await held("cleanup 2")
        await noted("cleanup 3")
    return "done"


def test_before_the_first_turn(lives: Lives) -> None:
    """CONFORMANCE L1: created by a client, cancelled before any worker saw it; no step of it ever runs."""

    async def main() -> None:
        async with lives.engine(worker=False) as client:
            handle = await client.start(cancel_in_step("never"), id="run")
            assert (await handle.status()).status is Status.PENDING
            assert await handle.cancel("changed my mind")
            assert (await handle.status()).cancel_requested
        async with lives.engine() as engine:
            kinds = await ended(engine.get("run"), "changed my mind")
            assert kinds == ["started", "cancel_requested", "cancelled"]

    run_async(main())
    assert did == []


def test_in_a_step(lives: Lives) -> None:
    """CONFORMANCE L1: the step's code gets its CancelledError, and its record never comes."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(cancel_in_step("slow"), id="run")
            await until(lambda: "slow began" in did)
            assert await handle.cancel("enough")
            assert await ended(handle, "enough") == ["started", "step_done", "cancel_requested", "cancelled"]
            await until(lambda: "slow cancelled" in did)

    run_async(main())
    assert did == ["first", "slow began", "slow cancelled"]


@pytest.mark.parametrize("how", ["event", "sleep"])
def test_while_waiting(lives: Lives, how: str) -> None:
    """A run that waits hears of the cancellation where it waits. CONFORMANCE L1."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(cancel_waiting(how), id="run")
            assert (await handle.status()).status is Status.WAITING
            assert await handle.cancel()
            assert await ended(handle, "no reason") == ["started", "cancel_requested", "cancelled"]

    run_async(main())


@pytest.mark.parametrize("how", ["event", "sleep"])
def test_evicted_from_memory(lives: Lives, how: str) -> None:
    """CONFORMANCE L1: a run that is only in the store is brought back to be cancelled."""

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine:
            handles = [await engine.start(cancel_waiting(how), id=f"run-{number}") for number in range(4)]
            assert engine.worker is not None
            coordinator = engine.worker.residents
            await until(lambda: len(coordinator) <= 1)
            for number, handle in enumerate(handles):
                assert await handle.cancel(f"reason {number}")
            for number, handle in enumerate(handles):
                assert await ended(handle, f"reason {number}") == ["started", "cancel_requested", "cancelled"]

    run_async(main())


def test_by_another_engine_while_running(lives: Lives) -> None:
    """CONFORMANCE L1: the request reaches the worker that has the run."""

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            handle = await engine.start(cancel_in_step("slow"), id="run")
            await until(lambda: "slow began" in did)
            assert await client.cancel("run", "from afar")
            await ended(handle, "from afar")
            with pytest.raises(RunCancelled, match="from afar"):
                await client.result("run")

    run_async(main())


def test_request_survives_a_crash(lives: Lives) -> None:
    """CONFORMANCE L1, FAULTS A16: accepted, then the worker dies before it does anything about it."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(cancel_waiting("event"), id="run")
            await lives.crash(engine)
        async with lives.engine(worker=False) as client:
            assert await client.cancel("run", "durable")
        async with lives.engine() as engine:
            await ended(engine.get("run"), "durable")

    run_async(main())


def test_cleanup_steps_run_on_cancel(lives: Lives) -> None:
    """CONFORMANCE L2: durable steps in `finally` run to their end, then the run is cancelled."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            handle = await engine.start(cancel_with_cleanup(), id="run")
            await until(lambda: "work began" in did)
            await handle.cancel()
            return await ended(handle)

    assert run_async(main()) == ["started", "cancel_requested", "step_done", "step_done", "cancelled"]
    assert [line for line in did if not line.startswith("work")] == [
        "requested: True",
        "cleanup 1",
        "cleanup 3",
    ]


def test_cleanup_goes_on_after_a_crash_without_repeating(lives: Lives) -> None:
    """CONFORMANCE L2: the process dies in the middle of the cleanup."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(cancel_with_cleanup("long"), id="run")
            await until(lambda: "work began" in did)
            await handle.cancel("stop")
            await until(lambda: "cleanup 2 began" in did)
            await lives.crash(engine)
        gate("cleanup 2").set()
        async with lives.engine() as engine:
            await ended(engine.get("run"), "stop")

    run_async(main())
    assert did.count("cleanup 1") == 1
    assert did.count("cleanup 2 ended") == 1
    assert did.count("cleanup 3") == 1
    assert did.count("work began") == 1


def test_cancel_during_cleanup_changes_nothing(lives: Lives) -> None:
    """CONFORMANCE L1: a second request is refused (False); the first reason stands and the cleanup goes on."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(cancel_with_cleanup("long"), id="run")
            await until(lambda: "work began" in did)
            assert await handle.cancel("first")
            await until(lambda: "cleanup 2 began" in did)
            assert not await handle.cancel("second")
            gate("cleanup 2").set()
            await ended(handle, "first")

    run_async(main())
    assert did[-1] == "cleanup 3"


def test_grace_ends_a_cleanup_that_does_not_finish(lives: Lives) -> None:
    """CONFORMANCE L2: `cancel_grace` is over, the run ends as cancelled, its step is cancelled."""

    async def main() -> None:
        async with lives.engine(cancel_grace=0.05) as engine:
            handle = await engine.start(cancel_with_cleanup("endless"), id="run")
            await until(lambda: "work began" in did)
            await handle.cancel("stop")
            kinds = await ended(handle, "stop")
            assert kinds[-1] == "cancelled"
            (last,) = (await engine.admin.history("run"))[-1:]
            assert last.data["terminated"] is True
            await until(lambda: "cleanup 2 cancelled" in did)

    run_async(main())
    assert "cleanup 3" not in did


@workflow(cancel_grace=0.05)
async def short_grace() -> None:
    try:
        await held("work")
    finally:
        await held("cleanup 2")


def test_grace_of_a_workflow_comes_before_the_setting_and_survives_a_restart(lives: Lives) -> None:
    """CONFORMANCE L2: the deadline of the grace is recorded with the request."""

    async def main() -> None:
        async with lives.engine(cancel_grace=3600) as engine:
            handle = await engine.start(short_grace(), id="run")
            await until(lambda: "work began" in did)
            await handle.cancel("stop")
            await until(lambda: "cleanup 2 began" in did)
            await lives.crash(engine)
        async with lives.engine(cancel_grace=3600) as engine:
            await ended(engine.get("run"), "stop")

    run_async(main())


@workflow
async def swallows(then: str) -> str:
    try:
        await held("work")
    except asyncio.CancelledError:
        did.append("swallowed")
    if then == "return":
        return "anyway"
    while True:
        await sleep("1 hour")


def test_run_that_swallows_cancellation_and_returns_is_completed(lives: Lives) -> None:
    """CONFORMANCE L2, FAULTS D22: as in asyncio; the request stays visible."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(swallows("return"), id="run")
            await until(lambda: "work began" in did)
            assert await handle.cancel("please")
            assert await handle.result() == "anyway"
            view = await handle.status()
            assert view.status is Status.COMPLETED
            assert view.cancel_requested

    run_async(main())


def test_run_that_swallows_cancellation_and_goes_on_can_be_terminated(lives: Lives) -> None:
    """Cancelling is a request; terminating is not. CONFORMANCE L2, FAULTS D22."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(swallows("go on"), id="run")
            await until(lambda: "work began" in did)
            assert await handle.cancel("please")
            await until(lambda: "swallowed" in did)
            assert not await handle.cancel("again")
            assert await engine.admin.terminate("run", "enough")
            await ended(handle)

    run_async(main())


@workflow
async def looks_at_the_request() -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await held("work")
    return f"requested: {info().cancel_requested}"


def test_code_may_look_at_the_request_instead(lives: Lives) -> None:
    """As `info().cancel_requested`, also after a replay."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(looks_at_the_request())
            await until(lambda: "work began" in did)
            await handle.cancel()
            assert await handle.result() == "requested: True"

    run_async(main())


def test_twice_and_when_finished_is_false(lives: Lives) -> None:
    """CONFORMANCE L1, FAULTS F11: False, and nothing changes; unknown runs are an error."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(finishes_at_once(), id="done")
            assert await handle.result() == "done"
            before = await handle.status()
            assert not await handle.cancel("too late")
            assert not await engine.admin.terminate("done", "too late")
            assert await handle.status() == before
            assert await handle.result() == "done"
            waiting = await engine.start(cancel_waiting("event"), id="waiting")
            assert await waiting.cancel("first")
            assert not await waiting.cancel("second")
            await ended(waiting, "first")
            assert not await waiting.cancel("third")
            with pytest.raises(RunNotFound):
                await engine.cancel("nobody")
            with pytest.raises(RunNotFound):
                await engine.admin.terminate("nobody")

    run_async(main())


@workflow
async def finishes_at_once() -> str:
    return "done"


def test_terminate_is_immediate_and_skips_the_cleanup(lives: Lives) -> None:
    """Everybody hears RunCancelled: the waiter here, a client elsewhere, a caller that asks later."""

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            handle = await engine.start(cancel_with_cleanup(), id="run")
            here = asyncio.ensure_future(handle.result())
            there = asyncio.ensure_future(client.result("run"))
            await until(lambda: "work began" in did)
            assert await engine.admin.terminate("run", "now")
            for waiter in (here, there):
                with pytest.raises(RunCancelled, match="now"):
                    await waiter
            assert not await engine.admin.terminate("run", "again")
            kinds = [entry.kind for entry in await engine.admin.history("run")]
            assert kinds == ["started", "cancelled"]
            await until(lambda: "work cancelled" in did)
        async with lives.engine() as engine:
            with pytest.raises(RunCancelled, match="now"):
                await engine.result("run")

    run_async(main())
    assert not [line for line in did if line.startswith("cleanup")]


def test_late_completion_never_overwrites_a_cancel(lives: Lives) -> None:
    """CONFORMANCE L1: the step ends after the run was terminated elsewhere; its worker's commit is refused."""

    async def main() -> None:
        async with lives.engine(sweep_interval=60) as engine, lives.engine(worker=False) as client:
            await engine.start(cancel_in_step("slow"), id="run")
            await until(lambda: "slow began" in did)
            assert await client.admin.terminate("run", "first")
            gate("slow").set()
            with pytest.raises(RunCancelled, match="first"):
                await engine.result("run", timeout=10)
            before = await client.admin.history("run")
            await until(lambda: did[-1] in {"slow ended", "slow cancelled"})
            assert await client.admin.history("run") == before
            assert (await client.status("run")).status is Status.CANCELLED

    run_async(main())


@workflow
async def ends_on_an_event() -> str:
    return (await receive(GoOnCancel)).text


@pytest.mark.parametrize("order", ["cancel first", "complete first", "together", "terminate together"])
def test_cancel_and_complete_race_to_exactly_one_end(lives: Lives, order: str) -> None:
    """Law 7, FAULTS C16: one terminal status, and every reader agrees on it."""

    async def outcome(engine: Engine, run_id: str) -> str:
        try:
            return str(await engine.result(run_id, timeout=10))
        except RunCancelled as error:
            return f"cancelled {'why' in str(error)}"

    async def act(engine: Engine, run_id: str, kind: str) -> None:
        try:
            match kind:
                case "cancel":
                    await engine.cancel(run_id, "why")
                case "terminate":
                    await engine.admin.terminate(run_id, "why")
                case _:
                    await engine.send(run_id, GoOnCancel("done"))
        except RunFinished:
            return  # the loser may be told that the run has ended

    orders = {
        "cancel first": [["cancel"], ["send"]],
        "complete first": [["send"], ["cancel"]],
        "together": [["cancel", "send"]],
        "terminate together": [["send", "terminate", "cancel"]],
    }

    async def main() -> set[str]:
        seen = set()
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            for number in range(15):
                run_id = f"run-{number}"
                await engine.start(ends_on_an_event(), id=run_id)
                for together in orders[order]:
                    where = [engine, client] if number % 2 else [client, engine]
                    await asyncio.gather(*(act(where[i % 2], run_id, kind) for i, kind in enumerate(together)))
                answers = {await outcome(engine, run_id), await outcome(client, run_id)}
                assert len(answers) == 1, "all readers agree"
                history = await client.admin.history(run_id)
                ends = [e.kind for e in history if e.kind in {"completed", "cancelled", "failed"}]
                assert len(ends) == 1
                assert history[-1].kind == ends[0]
                status = (await client.status(run_id)).status
                assert status == ends[0]
                seen |= answers
        return seen

    seen = run_async(main())
    assert seen <= {"done", "cancelled True"}
