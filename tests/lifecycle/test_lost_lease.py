"""A worker that others took for dead while it lives: it lets go of everything and goes on under another id."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure import Engine, current_step, event, limits, receive, reply, sleep, step, workflow
from perdure.errors import PerdureError, StoreUnavailable
from perdure.store.model import Renewed
from support.faulty_stores import Call, DisturbedStore, Hold, lose_answer, nothing, unavailable
from support.lives import Lives, run_async, until

did: Counter[str] = Counter()
cancelled: list[str] = []
gates: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    did.clear()
    cancelled.clear()
    gates.clear()


@step
async def lease_holds_up() -> str:
    """The first attempt never ends by itself."""
    did["begun"] += 1
    if did["begun"] == 1:
        try:
            await gates[0].wait()
        except asyncio.CancelledError:
            cancelled.append(current_step().idempotency_key)
            raise
    did["held up"] += 1
    return "done"


@step
async def lease_counts(name: str) -> str:
    did[name] += 1
    return name


@workflow
async def lease_long(name: str) -> list[str]:
    return [await lease_counts(f"{name} before"), await lease_holds_up(), await lease_counts(f"{name} after")]


@workflow
async def lease_short(name: str) -> str:
    return await lease_counts(name)


@workflow
async def lease_waits(name: str) -> str:
    for number in range(5):
        await lease_counts(f"{name} {number}")
        await sleep(0.01)
    return name


@event
@dataclass
class LeaseAsked:
    number: int


@workflow
async def lease_answers() -> None:
    asked = await receive(LeaseAsked)
    await lease_holds_up()
    await reply(asked, asked.number + 1)


def id_of(engine: Engine) -> str:
    assert engine.worker is not None
    return engine.worker.id


async def take_its_runs(engine: Engine, other: Engine) -> str:
    """As when somebody has found it dead: its row is gone and its runs are free. Returns the id that it had."""
    lost = id_of(engine)
    await other.store.unregister_worker(lost, other.clock.now())
    return lost


async def goes_on(engine: Engine, lost: str) -> None:
    await until(lambda: id_of(engine) != lost)


async def recorded_once(engine: Engine, run_id: str) -> None:
    steps = [entry.location for entry in await engine.admin.history(run_id) if entry.kind == "step_done"]
    assert len(steps) == len(set(steps)) > 0


def test_its_runs_end_elsewhere_and_it_serves_new_ones(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """FAULTS C3, C4: a step that runs is told to stop, a caller who waits hears the result, nothing is recorded twice;
    one line tells both ids."""

    async def main() -> None:
        gates.append(asyncio.Event())
        async with lives.engine() as first:
            run = await first.start(lease_long("run"), id="run")
            await until(lambda: did["begun"] == 1)
            waiting = asyncio.ensure_future(run.result())
            async with lives.engine() as second:
                lost = await take_its_runs(first, second)
                assert await waiting == ["run before", "done", "run after"]
                await goes_on(first, lost)
                assert len(cancelled) == 1
                assert {info.id for info in await second.store.workers()} == {id_of(first), id_of(second)}
                await recorded_once(second, "run")
            assert await (await first.start(lease_short("new"), id="new")).result() == "new"
            row = await first.store.get("new")
            assert row is not None
            assert row.owner in (None, id_of(first))
            # "was taken for dead" or, if it comes to that by itself sooner, "could not renew its lease".
            (line,) = [record.getMessage() for record in caplog.records if "It lets go of all" in record.getMessage()]
            assert lost in line
            assert id_of(first) in line
        assert did == {"run before": 1, "begun": 2, "held up": 1, "run after": 1, "new": 1}

    with caplog.at_level(logging.WARNING):
        run_async(main())


def test_alone_it_takes_its_own_runs_again(lives: Lives) -> None:
    """Nobody else is there: what it had is claimed by what it is now, as after a crash."""

    async def main() -> None:
        gates.append(asyncio.Event())
        async with lives.engine() as engine:
            run = await engine.start(lease_long("run"), id="run")
            await until(lambda: did["begun"] == 1)
            lost = await take_its_runs(engine, engine)
            await goes_on(engine, lost)
            assert await run.result() == ["run before", "done", "run after"]
            assert did == {"run before": 1, "begun": 2, "held up": 1, "run after": 1}

    run_async(main())


def test_many_runs_and_one_loss_after_another(lives: Lives) -> None:
    """Every run ends with its result, and every step is recorded once, wherever it happened."""

    async def main() -> None:
        async with lives.engine() as first, lives.engine() as second:
            runs = [await first.start(lease_waits(f"r{number}"), id=f"r{number}") for number in range(10)]
            results = asyncio.gather(*(run.result() for run in runs))
            for engine, other in ((first, second), (second, first), (first, second)):
                await goes_on(engine, await take_its_runs(engine, other))
            assert await results == [f"r{number}" for number in range(10)]
            for run in runs:
                await recorded_once(first, run.id)

    run_async(main())


def test_a_caller_of_request_hears_the_answer(lives: Lives) -> None:
    async def main() -> None:
        gates.append(asyncio.Event())
        async with lives.engine() as first, lives.engine() as second:
            run = await first.start(lease_answers(), id="run")
            asking = asyncio.ensure_future(run.request(LeaseAsked(1), timeout=20))
            await until(lambda: did["begun"] == 1)
            await take_its_runs(first, second)
            assert await asking == 2

    run_async(main())


@pytest.mark.parametrize("before", [True, False], ids=["before it is stored", "after it is stored"])
def test_a_run_on_its_way_into_the_store(lives: Lives, before: bool) -> None:
    """The caller hears of it as if nothing had happened; the run is stored as that of a worker that is no more, and
    freed by the next sweep."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with lives.engine() as second, Engine(store, sweep_interval=0.02) as first:  # type: ignore[arg-type]
            store.around("create_all", hold := Hold(), before=before, times=1)
            starting = asyncio.ensure_future(first.start(lease_short("run"), id="run"))
            await hold.reached.wait()
            lost = await take_its_runs(first, second)
            await goes_on(first, lost)
            hold.release.set()
            assert await (await starting).result() == "run"
            await until(lambda: did["run"] >= 1)
            await recorded_once(first, "run")

    run_async(main())


def test_a_run_that_was_only_asked_for_is_refused(lives: Lives) -> None:
    """Nothing was written, so the caller may start it again. One whose first turn has failed hears that, although it
    was not looked up yet whether it exists. Nobody waits for ever."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with Engine(store, sweep_interval=0.02) as engine:  # type: ignore[arg-type]
            worker = engine.worker
            assert worker is not None
            spec = lease_short("a").spec
            store.before("get", hold := Hold(), times=1)
            refused = worker.start(spec, b"[]", "refused")
            await hold.reached.wait()
            asyncio.get_running_loop().call_soon(nothing, Call("", ()))  # so that it is not stored on the spot
            asked = worker.start(spec, lease_short("a").data, "asked")
            worker.disowned()
            with pytest.raises(StoreUnavailable, match="Start it again"):
                await asked
            with pytest.raises(PerdureError, match="cannot be read back"):
                await refused
            hold.release.set()
            assert await engine.store.get("asked") is None

    run_async(main())


def test_until_it_is_registered_again_the_engine_has_no_worker(lives: Lives) -> None:
    """Runs are left in the store for any worker, results are looked up there."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with Engine(store, sweep_interval=0.02) as first:  # type: ignore[arg-type]
            store.before("register_worker", hold := Hold(), times=1)
            async with lives.engine() as second:
                lost = await take_its_runs(first, second)
                await hold.reached.wait()
                assert id_of(first) == lost
                assert await (await first.start(lease_short("run"), id="run")).result() == "run"
                await first.admin.pause((await first.start(lease_answers(), id="paused")).id)
            hold.release.set()
            await goes_on(first, lost)
            assert await (await first.start(lease_short("new"), id="new")).result() == "new"

    run_async(main())


def test_closing_in_between_leaves_nobody_behind(lives: Lives) -> None:
    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with lives.engine() as second:
            async with Engine(store, sweep_interval=0.02) as first:  # type: ignore[arg-type]
                store.after("register_worker", hold := Hold(), times=1)
                await take_its_runs(first, second)
                await hold.reached.wait()
            assert [info.id for info in await second.store.workers()] == [id_of(second)]

    run_async(main())


def test_a_store_that_does_not_answer_is_waited_for(lives: Lives) -> None:
    """Under one new id, however often registering is tried."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with lives.engine() as second, Engine(store, sweep_interval=0.02) as first:  # type: ignore[arg-type]
            asked = store.after("register_worker", lose_answer, times=2)
            unread = store.before("news", unavailable(), lambda call: call.args[1] == 0, times=2)
            await goes_on(first, await take_its_runs(first, second))
            assert (asked.hits, unread.hits) == (2, 2)
            assert {info.id for info in await second.store.workers()} == {id_of(first), id_of(second)}

    run_async(main())


def test_a_host_that_cancels_everything_in_between(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the loop goes on after all, the worker begins again: under the id that it had chosen."""
    monkeypatch.setattr(limits, "CANCELLED_BY_OTHERS_SECONDS", 0.01)

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with lives.engine() as second, Engine(store, sweep_interval=0.02) as first:  # type: ignore[arg-type]
            store.after("register_worker", hold := Hold(), times=1)
            lost = await take_its_runs(first, second)
            await hold.reached.wait()
            assert first.parts is not None
            assert first.parts.sweeper is not None
            first.parts.sweeper.cancel()
            await goes_on(first, lost)
            assert {info.id for info in await second.store.workers()} == {id_of(first), id_of(second)}

    run_async(main())


def test_a_store_that_takes_every_worker_for_dead_is_not_asked_all_the_time(lives: Lives) -> None:
    """Once in an interval of the sweep; and when it does so no more, everything is as before."""

    async def main() -> None:
        store = DisturbedStore(lives.store())

        def dead(call: Call) -> None:
            call.result = Renewed(alive=False)

        began = asyncio.get_running_loop().time()
        rule = store.after("renew", dead, lambda call: True, at=2, times=4)
        registered = store.before("register_worker", nothing)
        async with Engine(store, sweep_interval=0.05) as engine:  # type: ignore[arg-type]
            await until(lambda: rule.hits == 4)
            assert asyncio.get_running_loop().time() - began >= 0.1
            assert await (await engine.start(lease_short("run"), id="run")).result() == "run"
            assert registered.hits <= 5

    run_async(main())


def test_the_lock_of_the_old_id_is_let_go(tmp_path: Path) -> None:
    """On SQLite each registered worker holds one lock file, and no other is left behind."""

    async def main() -> None:
        lives = Lives("sqlite", tmp_path)
        async with lives.engine() as first, lives.engine() as second:
            await goes_on(first, await take_its_runs(first, second))
            names = {path.name for path in tmp_path.glob("*.lock")}
            assert names == {f"test.db-worker-{id_of(engine)}.lock" for engine in (first, second)}
        assert not list(tmp_path.glob("*.lock"))

    run_async(main())
