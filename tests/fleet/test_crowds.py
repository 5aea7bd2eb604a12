"""Many workers and little to do, one worker and much to do at once, several that tidy up after the same dead one."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.work import GoOn, fleet_engine, many_notes, note, two_notes
from perdure import Engine, sleep_until, workflow
from perdure.store.postgres import PostgresStore
from perdure.store.postgres import workers as store_workers
from perdure.store.postgres.claims import Claims
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server
from support.processes import Process

WORKERS = 20
TIMERS, ROOM = 800, 150


@workflow
async def crowd_timer(path: str, number: int, moment: datetime) -> int:
    await sleep_until(moment)
    await note(path, f"{number}")
    return number


def test_many_workers_and_one_run_are_no_stampede(effects: Effects, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS C12: twenty workers and one run at a time: each look at what is due is for a hint or a sweep, so their
    number is bounded, nobody looks again in vain, and each run has one owner."""
    url = server().url(server().fresh_schema())
    looks: Counter[str] = Counter()
    count, take = Claims.count, Claims.take

    def counted(self: Claims, session: Any) -> Any:
        looks["looks"] += 1
        return count(self, session)

    def taken(self: Claims, *arguments: Any) -> Any:
        looks["claims"] += 1
        return take(self, *arguments)

    monkeypatch.setattr(Claims, "count", counted)
    monkeypatch.setattr(Claims, "take", taken)

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(Engine(PostgresStore(url), worker=False))
            for _ in range(WORKERS):
                engine = Engine(PostgresStore(url), sweep_interval=1.0, lease=60)
                await stack.enter_async_context(engine)
            await asyncio.sleep(1.0)  # the news of their beginning is over
            looks.clear()
            await asyncio.sleep(3.0)  # the point is that time passes, and nobody has anything to do
            assert 0 < looks["looks"] <= 3 * WORKERS * 3, f"{looks}: each sweeps once a second, and wakes nobody"
            looks.clear()
            began = asyncio.get_running_loop().time()
            for number in range(10):
                run = await client.start(many_notes(str(effects.path), f"r{number}", 3), id=f"r{number}")
                assert await run.result() == 3
            seconds = asyncio.get_running_loop().time() - began
            row = [await client.store.get(f"r{number}") for number in range(10)]
            assert [one.epoch for one in row if one is not None] == [1] * 10
            # Ten starts and ten ends are told of, and everybody sweeps once a second; twice as much for good measure.
            assert looks["looks"] <= 2 * WORKERS * (20 + seconds), looks
            # What is claimed is claimed by those who saw it; a handful may have seen the same.
            assert looks["claims"] <= looks["looks"]

    run_async(main(), patience=90)
    assert effects.counts() == Counter({f"r{run} {step}": 1 for run in range(10) for step in range(3)})


def test_many_timers_that_are_due_at_once_fire_oldest_first_in_bounded_memory(effects: Effects) -> None:
    """FAULTS C13: 800 timers come due while nobody works; then one worker with room for 150 runs has no more in
    memory at any time, keeps its lease, and begins with those that were due first."""
    url = server().url(server().fresh_schema())
    path = str(effects.path)

    async def main() -> None:
        began = datetime.now(UTC) + timedelta(seconds=5)
        async with Engine(PostgresStore(url), sweep_interval=0.1, lease=60) as engine:
            # In the opposite order of their ids: the first are due last.
            await asyncio.gather(*[
                engine.start(crowd_timer(path, number, began - timedelta(milliseconds=number)), id=f"t{number:04}")
                for number in range(TIMERS)
            ])  # fmt: skip
            await engine.close(grace=0)
        await asyncio.sleep((began - datetime.now(UTC)).total_seconds())  # until all are due
        most = 0
        async with Engine(PostgresStore(url), sweep_interval=0.1, lease=3, residents_max=ROOM) as engine:
            assert engine.worker is not None
            worker = engine.worker

            async def done() -> bool:
                nonlocal most
                most = max(most, len(worker.residents))
                return len(effects.lines()) == TIMERS

            await until(done, patience=60)
            assert engine.worker is worker, "its lease was renewed all the time"
        assert most <= ROOM
        fired = [int(line) for line in effects.lines()]
        assert sorted(fired) == list(range(TIMERS)), "each once"
        late = [number for number in fired[:ROOM] if number < TIMERS - 3 * ROOM]
        assert not late, f"among the first {ROOM} are {late}, which were due long after others"

    run_async(main(), patience=120)


def test_two_that_free_the_runs_of_a_dead_worker_free_them_once(effects: Effects) -> None:
    """FAULTS C1, C18: a worker is killed in the transaction in which it frees the runs of a dead one; then two find
    both dead at the same moment, and each run is claimed by one of them."""
    schema = server().fresh_schema()
    url = server().url(schema)
    names = [f"r{number}" for number in range(30)]

    async def main() -> None:
        async with Engine(url, worker=False) as client:
            with Process("fleet.work:serve", url) as dying, Process("fleet.test_crowds:serve_and_die", url) as second:
                dying.expect("ready")
                await asyncio.gather(*[client.start(two_notes(str(effects.path), name), id=name) for name in names])
                await until(lambda: len(effects.lines()) == len(names))
                second.expect("ready")
                dying.kill()
                assert await asyncio.to_thread(second.wait) == -signal.SIGKILL
                async with fleet_engine(url) as third, fleet_engine(url) as fourth:
                    for name in names:
                        await client.send(name, GoOn())
                    assert [await client.result(name) for name in names] == [
                        [f"{name} 1", f"{name} 2"] for name in names
                    ]
                    assert third.worker is not None
                    assert fourth.worker is not None
                    living = {third.worker.id, fourth.worker.id}

                    async def dead_are_forgotten() -> bool:
                        return {worker.id for worker in await client.store.workers()} == living

                    await until(dead_are_forgotten)

    run_async(main(), patience=60)
    counts = effects.counts()
    assert {f"{name} 2": counts[f"{name} 2"] for name in names} == {f"{name} 2": 1 for name in names}


async def serve_and_die(url: str) -> None:
    """A worker that kills itself in the transaction in which it frees the runs of another one."""
    from fleet.work import serve

    original = store_workers.free_some

    def free_and_die(session: Any, worker_id: str, died: bool) -> int:
        freed = original(session, worker_id, died)
        if freed:
            signal.raise_signal(signal.SIGKILL)
        return freed

    store_workers.free_some = free_and_die
    await serve(url)
