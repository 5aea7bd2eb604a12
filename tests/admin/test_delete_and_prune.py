"""`delete` and `prune`: ended runs leave without a trace, open ones never, and late turns bring nothing back."""

from __future__ import annotations

import asyncio

import pytest

from admin.flows import Outside, reaches
from events.kinds import Note
from lifecycle.moved_clock import MovedClock
from perdure import Engine, RunNotFound, receive, step, workflow
from perdure.admin import actions
from perdure.errors import ActionRefused, BadArgument, StoreUnavailable
from perdure.store.turn import Rejected
from perdure.types import Status
from stores.store_kit import commit, create, finishing, step_row, turn
from support.faulty_stores import DisturbedStore, lose_answer, unavailable
from support.lives import Lives, run_async, until

outside = Outside()


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()


@step(max_attempts=1)
async def act(what: str) -> str:
    return await outside.do(what)


@workflow
async def quick(what: str = "x") -> str:
    return await act(what)


@workflow
async def parent() -> str:
    return await quick("child")


@workflow
async def listening() -> str:
    return (await receive(Note)).text


def test_an_ended_run_is_gone_and_its_id_is_free(lives: Lives) -> None:
    """CONFORMANCE L4, W1: journal, inbox, keys; the id may be used anew and means another run."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(listening(), id="run")
            await engine.send("run", Note("one"), key="k")
            assert await engine.result("run", timeout=20) == "one"
            row = await engine.store.get("run")
            assert row is not None
            await engine.admin.delete("run")
            with pytest.raises(RunNotFound):
                await engine.status("run")
            assert list(await engine.store.journal(row.key, 1)) == []
            assert list(await engine.store.inbox(row.key, 9)) == []
            await engine.start(listening(), id="run")
            await engine.send("run", Note("two"), key="k")
            assert await engine.result("run", timeout=20) == "two"
            with pytest.raises(RunNotFound):
                await engine.admin.delete("nobody")

    run_async(main())


def test_an_open_run_is_refused(lives: Lives) -> None:
    """CONFORMANCE L4: end it first."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(listening(), id="run")
            with pytest.raises(ActionRefused, match="perdure terminate run"):
                await engine.admin.delete("run")
            await engine.admin.pause("run")
            with pytest.raises(ActionRefused, match="is paused"):
                await engine.admin.delete("run")
            await engine.admin.terminate("run")

            async def let_go() -> bool:
                try:
                    await engine.admin.delete("run")
                except ActionRefused:  # its worker has not noticed yet
                    return False
                return True

            await until(let_go)
            assert await engine.list() == []

    run_async(main())


def test_a_late_turn_does_not_bring_a_deleted_run_back(lives: Lives) -> None:
    """FAULTS C20, C21: also not when the id is in use again."""

    async def main() -> None:
        store = lives.store()
        await store.open()
        old = await create(store, "a")
        await store.terminate("a", "", 5)
        await store.reap("w2", 6)
        assert await store.delete([old, old, 999]) == 1
        new = await create(store, "a")
        assert new != old
        for late in (turn(old, 2, step_row(2)), finishing(old, 2)):
            assert isinstance(await commit(store, late), Rejected)
        assert [row.seq for row in await store.journal(new, 1)] == [1]
        assert await store.delete([new]) == 0, "an open run"
        await store.close()

    run_async(main())


def test_a_run_that_its_worker_still_holds_is_refused_until_that_is_gone(lives: Lives) -> None:
    """FAULTS C20: a worker that died holding it does not keep it for ever."""
    outside.hold = {"x"}

    async def main() -> None:
        engine = lives.engine(sweep_interval=30)
        await engine.open()
        await engine.start(quick(), id="run")
        await until(lambda: outside.done["x"] == 1)
        assert engine.parts is not None
        assert engine.parts.unwatch is not None
        engine.parts.unwatch()  # it does not hear of the end while we look
        async with lives.engine(worker=False) as client:
            store = client.store
            assert await store.terminate("run", "", 5) is not None
            with pytest.raises(ActionRefused, match="still holds it"):
                await client.admin.delete("run")
            await lives.crash(engine)
            outside.hold = set()
            await client.admin.delete("run")
            assert await client.list() == []

    run_async(main())


def test_parents_and_children_do_not_miss_each_other(lives: Lives) -> None:
    """CONFORMANCE L4: a finished child may go while its parent is open, and the other way round."""

    async def main() -> None:
        outside.hold = {"child"}
        async with lives.engine() as engine:
            await engine.start(parent(), id="run")
            await until(lambda: outside.done["child"] == 1)
            outside.hold = set()
            assert await engine.result("run", timeout=20) == "child done"
            await engine.admin.delete("run/quick")
            assert [view.id for view in await engine.list()] == ["run"]
            await engine.admin.delete("run")
            await engine.start(parent(), id="run")
            assert await engine.result("run", timeout=20) == "child done"

    run_async(main())


def test_prune_by_age_status_and_workflow(lives: Lives) -> None:
    """CONFORMANCE L4: counted from the end of a run; open runs stay, however old they are."""
    outside.broken = {"bad"}

    async def main() -> None:
        clock = MovedClock()
        async with lives.engine(clock=clock) as engine:
            await engine.start(listening(), id="open")
            await engine.start(listening(), id="cancelled")
            await engine.cancel("cancelled")
            for number in range(3):
                await engine.start(quick(), id=f"old-{number}")
                await engine.start(quick("bad"), id=f"bad-{number}")
            await reaches(engine, "cancelled", "cancelled")
            for number in range(3):
                await reaches(engine, f"old-{number}", "completed")
                await reaches(engine, f"bad-{number}", "failed")
            clock.move(40 * 86400)
            await engine.start(quick(), id="young")
            await engine.result("young", timeout=20)
            assert await engine.admin.prune("60 days") == 0
            assert await engine.admin.prune("30 days", workflow="listening", status="completed") == 0
            assert await engine.admin.prune("30 days", status=[Status.COMPLETED]) == 3
            assert await engine.admin.prune("30 days") == 4
            assert {view.id for view in await engine.list()} == {"open", "young"}
            with pytest.raises(BadArgument, match="only ended runs"):
                await engine.admin.prune("30 days", status="waiting")
            with pytest.raises(BadArgument):
                await engine.admin.prune(-1)

    run_async(main())


def test_prune_works_in_bounded_transactions_beside_a_worker(lives: Lives) -> None:
    """CONFORMANCE L4, L5: 1,000 old runs, while others start and end: none of those is touched, none of these stays."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with Engine(store, worker=False) as other:
            for number in range(1_000):  # before there is a worker, which might claim one that is about to be ended
                key = await create(store, f"old-{number}", owner=None)
                await store.terminate(f"old-{number}", "", 5)
                assert key
            calls: list[int] = []
            store.at_the_call("delete", lambda call: calls.append(len(call.args[0])))
            async with lives.engine() as engine:
                pruning = asyncio.ensure_future(other.admin.prune("1 day"))
                for number in range(50):
                    await engine.start(quick(), id=f"new-{number}")
                    assert await engine.result(f"new-{number}", timeout=20) == "x done"
                assert await pruning == 1_000
                assert max(calls) <= 100
                assert len(await engine.list(limit=1000)) == 50

    run_async(main())


def test_dry_run_counts_only(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(quick(), id="run")
            await engine.result("run", timeout=20)
            counted = await engine.admin.prune(0, status=Status.COMPLETED, dry_run=True)
            assert counted == 1
            assert len(await engine.list()) == 1

    run_async(main())


def test_an_answer_that_got_lost_does_not_make_a_deleted_run_unknown(lives: Lives) -> None:
    """Law 6: raised but committed. What did not happen raises, and may be repeated."""

    async def main() -> None:
        async with lives.engine() as engine:
            await (await engine.start(quick(), id="run")).result(timeout=20)
        store = DisturbedStore(lives.store())
        async with Engine(store, worker=False):
            outage = store.before("delete", unavailable(), times=1)
            with pytest.raises(StoreUnavailable):
                await actions.delete(store, "run", 1)
            lost = store.after("delete", lose_answer, times=1)
            await actions.delete(store, "run", 1)
            assert (outage.hits, lost.hits) == (1, 1)
            assert await store.get("run") is None

    run_async(main())
