"""What a worker knows is of another past than what the server has: nothing of it is written, by no way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chaos.failover.machines import Machines, go_on, stop
from chaos.failover.nodes import Node, url
from chaos.failover.test_asynchronous_standby import OTHER_PAST, workers_on
from chaos.failover.work import Parcel, engine_on, journey
from perdure.errors import StoreUnavailable
from perdure.store.postgres import PostgresStore
from support.effects import Effects
from support.lives import run_async, until

pytestmark = pytest.mark.long

#: More than a sequence is written ahead (32): the promoted server hands out keys a second time.
LOST_RUNS = 80


def test_a_worker_with_runs_that_are_lost_writes_nothing_into_those_that_have_their_keys(
    machines: Machines, effects: Effects, tmp_path: Path
) -> None:
    """FAULTS B15: it stands still while the server is replaced, and other runs get the keys of its own. They end as
    they should, and have nothing in their journals that is not theirs."""

    async def main() -> None:
        primary = await asyncio.to_thread(Node(machines, "first").initialise)
        standby = await asyncio.to_thread(lambda: Node(machines, "second").follow(primary.port, "second"))
        location = url(primary.port, standby.port)
        with workers_on(location, tmp_path, 1) as ((stale,), (log,)):
            async with engine_on(location, worker=False) as client:
                await client.start(journey(str(effects.path), "kept", 1, 1), id="kept")
                await until(lambda: standby.has_received_all_of(primary))
                await asyncio.to_thread(standby.lose)
                lost = [f"lost{number}" for number in range(LOST_RUNS)]
                for name in lost:
                    await client.start(journey(str(effects.path), name, 2, 1), id=name)
                await until(lambda: len(effects.lines()) == 1 + 2 * LOST_RUNS)  # now they wait, in its memory
                lost_keys = {key for (key,) in primary.execute("SELECT key FROM perdure.runs WHERE id LIKE 'lost%'")}
                stopped = stop([stale.pid])
                await asyncio.to_thread(primary.lose)
                standby.start()
                await asyncio.to_thread(standby.promote)

                async def begin(name: str) -> None:
                    while True:
                        try:
                            await client.start(journey(str(effects.path), name, 3, 1), id=name)
                            return
                        except StoreUnavailable:
                            await asyncio.sleep(0.1)

                fresh = [f"new{number}" for number in range(LOST_RUNS)]
                for name in fresh:
                    await begin(name)
                keys = {key for (key,) in standby.execute("SELECT key FROM perdure.runs WHERE id LIKE 'new%'")}
                twice = len(keys & lost_keys)
                assert twice > LOST_RUNS / 4, "no key was handed out again: the test shows nothing"
                go_on(stopped)
                await until(lambda: OTHER_PAST in log.read_text())
                for name in fresh:
                    await client.send(name, Parcel(7), key="one")
                for name in fresh:
                    assert await client.get(name).result(timeout=60) == [7]
                    kinds = [record.kind for record in await client.admin.history(name)]
                    assert kinds.count("step_done") == 4, (name, kinds)
                rows = standby.execute("SELECT count(*) FROM perdure.runs WHERE id LIKE 'lost%'")
                assert rows == [(0,)]
                print(f"\n{twice} keys were handed out twice; the worker that had runs of these keys wrote nothing")

    run_async(main(), patience=120)


def test_a_former_primary_is_refused(machines: Machines) -> None:
    """FAULTS B15: it comes back and takes changes, and its host is named first in the URL. What is written there would
    be lost, so nothing is, and the error says what to do; with the promoted one all goes on."""

    async def main() -> None:
        primary = await asyncio.to_thread(Node(machines, "first").initialise)
        standby = await asyncio.to_thread(lambda: Node(machines, "second").follow(primary.port, "second"))
        store = PostgresStore(url(primary.port, standby.port))
        await store.open()
        try:
            await until(lambda: standby.has_received_all_of(primary))
            await asyncio.to_thread(primary.lose)
            await asyncio.to_thread(standby.promote)

            async def answers() -> bool:
                try:
                    return await store.get("nobody") is None
                except StoreUnavailable:
                    return False

            await until(answers)
            await asyncio.to_thread(primary.start)
            await asyncio.to_thread(
                standby.execute,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'perdure%'",
            )

            async def refusal() -> str:
                while True:
                    try:
                        await store.get("nobody")
                    except StoreUnavailable as error:
                        if "server of the past" in str(error):
                            return str(error)

            refused = await refusal()
            assert "timeline 1" in refused
            assert "timeline 2" in refused
            await asyncio.to_thread(primary.lose)
            await until(answers)
        finally:
            await store.close()

    run_async(main(), patience=60)


def test_connections_to_a_server_that_was_replaced_are_not_used(machines: Machines, effects: Effects) -> None:
    """FAULTS B15, C8: the network splits, so to say: the former primary lives and answers on the connections that are
    still there. One connection finds the promoted server, and from then on nobody asks the former one."""

    async def main() -> None:
        primary = await asyncio.to_thread(Node(machines, "first").initialise)
        standby = await asyncio.to_thread(lambda: Node(machines, "second").follow(primary.port, "second"))
        async with engine_on(url(standby.port, primary.port), 60) as engine:
            assert engine.worker is not None
            run = await engine.start(journey(str(effects.path), "a", 1, 1), id="a")
            await until(lambda: effects.lines() == ["a 0"])
            await until(lambda: standby.has_received_all_of(primary))
            await asyncio.to_thread(standby.promote)
            # One connection of five breaks, and the next one is made with the server that is named first.
            await asyncio.to_thread(
                primary.execute,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure listener'",
            )
            former = engine.worker.id
            await until(lambda: engine.worker is not None and engine.worker.id != former)
            await run.send(Parcel(3), key="one")
            assert await run.result() == [3]
            ((left,),) = primary.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'perdure%'")
            assert left == 0, "connections to a server that somebody has taken over from"
            assert primary.execute("SELECT status FROM perdure.runs WHERE id = 'a'") == [("waiting",)]
            assert standby.execute("SELECT status FROM perdure.runs WHERE id = 'a'") == [("completed",)]

    run_async(main(), patience=60)


def test_a_server_that_may_forget_is_not_trusted_after_it_crashed(
    machines: Machines, effects: Effects, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS B15: with `durability=relaxed` a crash loses the last moments, and the timeline stays as it is. Runs that
    are lost are gone from memory too; new ones that get their keys are not mixed up with them."""

    async def main() -> None:
        node = await asyncio.to_thread(Node(machines, "first").initialise, "wal_writer_delay = 10s\n")
        async with engine_on(url(node.port, options="&durability=relaxed"), 60) as engine:
            kept = await engine.start(journey(str(effects.path), "kept", 1, 1), id="kept")
            await until(lambda: effects.lines() == ["kept 0"])
            node.execute("CREATE TABLE flushed ()")  # a commit that is on disk, and so is all before it
            for number in range(LOST_RUNS):
                await engine.start(journey(str(effects.path), f"lost{number}", 1, 1), id=f"lost{number}")
            assert engine.worker is not None
            former = engine.worker.id
            await asyncio.to_thread(node.restart)
            await until(lambda: engine.worker is not None and engine.worker.id != former)
            assert any("durability=relaxed" in record.getMessage() for record in caplog.records)
            ((left,),) = node.execute("SELECT count(*) FROM perdure.runs WHERE id LIKE 'lost%'")
            assert left < LOST_RUNS, "nothing was lost: the test shows nothing"
            names = [f"new{number}" for number in range(LOST_RUNS)]
            runs = [await engine.start(journey(str(effects.path), name, 2, 1), id=name) for name in names]
            for run in [kept, *runs]:
                await run.send(Parcel(5), key="one")
                assert await run.result(timeout=30) == [5]
            for name in names:
                kinds = [record.kind for record in await engine.admin.history(name)]
                assert kinds.count("step_done") == 3, (name, kinds)
            print(f"\n{LOST_RUNS - left} of {LOST_RUNS} acknowledged runs were lost in a crash with durability=relaxed")

    run_async(main(), patience=60)
