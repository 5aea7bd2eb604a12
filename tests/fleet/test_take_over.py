"""A fleet on PostgreSQL: what becomes of the runs of a worker that dies, is stopped, is blocked, or leaves in order."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from fleet.work import GoOn, fleet_engine, holding, slow_note, two_notes
from perdure import Engine
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server
from support.processes import Process


@pytest.fixture
def url() -> str:
    return server().url(server().fresh_schema())


async def waits(engine: Engine, names: list[str]) -> bool:
    views = [await engine.status(name) for name in names]
    return all(view.status == "waiting" for view in views)


def test_the_runs_of_a_killed_worker_go_on_elsewhere(url: str, effects: Effects) -> None:
    """CONFORMANCE W3, FAULTS C3: SIGKILL; nobody has to say so, and nothing that was recorded is done again."""
    names = [f"r{number}" for number in range(20)]

    async def main() -> None:
        async with Engine(url, worker=False) as client:
            with Process("fleet.work:serve", url) as first:
                first.expect("ready")
                runs = [await client.start(two_notes(str(effects.path), name), id=name) for name in names]
                await until(lambda: waits(client, names))
                owners = {(await client.store.get(name)).owner for name in names}  # type: ignore[union-attr]
                assert len(owners) == 1
                with Process("fleet.work:serve", url) as second:
                    second.expect("ready")
                    first.kill()
                    for run in runs:
                        await run.send(GoOn())
                    results = [await run.result() for run in runs]
                    second.kill()
        assert results == [[f"{name} 1", f"{name} 2"] for name in names]
        assert effects.counts() == Counter({f"{name} {part}": 1 for name in names for part in (1, 2)})

    run_async(main(), patience=60)


def test_a_stopped_worker_commits_nothing_after_its_successor(url: str, effects: Effects) -> None:
    """FAULTS C3, C4: SIGSTOP past its lease, in the middle of a step; the successor finishes it, the late outcome is
    refused, and the worker goes on under another id."""

    async def main() -> None:
        async with Engine(url, worker=False) as client:
            with Process("fleet.work:serve", url) as first:
                first.expect("ready")
                run = await client.start(slow_note(str(effects.path), "a"), id="a")
                await until(lambda: len(effects.lines()) == 1)
                (worker,) = await client.store.workers()
                first.signal(signal.SIGSTOP)
                async with fleet_engine(url) as second:
                    await until(lambda: len(effects.lines()) == 2)  # it has begun the step again
                    Effects(Path(f"{effects.path}.go")).add("go")
                    assert await run.result() == "a"
                    ended = await client.store.get("a")
                    first.signal(signal.SIGCONT)

                    async def is_back() -> bool:
                        ids = {each.id for each in await client.store.workers()}
                        return worker.id not in ids and len(ids) == 2

                    await until(is_back)
                    assert second.worker is not None
                # Only the first one is left now, and it serves.
                again = await client.start(slow_note(str(effects.path), "b"), id="b")
                assert await again.result() == "b"
                assert await client.store.get("a") == ended
                assert [record.kind for record in await client.admin.history("a")] == [
                    "started", "step_done", "completed",
                ]  # fmt: skip

    run_async(main(), patience=60)


def test_a_blocked_event_loop_keeps_its_lease(url: str, effects: Effects) -> None:
    """FAULTS C7: code keeps the loop for three leases; the lease is renewed from a thread, and the step runs once."""

    async def main() -> None:
        async with fleet_engine(url) as watching, Engine(url, worker=False) as client:
            with Process("fleet.work:serve", url) as first:
                first.expect("ready")
                assert watching.worker is not None
                runs = [await client.start(holding(str(effects.path), f"h{n}", 4.5), id=f"h{n}") for n in range(2)]
                for run in runs:
                    await run.result()
                rows = [await client.store.get(f"h{n}") for n in range(2)]
                assert [row.epoch for row in rows if row is not None] == [1, 1]
        assert effects.counts() == Counter({"h0": 1, "h1": 1})

    run_async(main(), patience=60)


def test_a_worker_that_leaves_in_order_hands_over_at_once(url: str, effects: Effects) -> None:
    """Its runs do not wait for the end of its lease, which is an hour here."""

    async def main() -> None:
        leaving = fleet_engine(url, lease=3_600)
        await leaving.open()
        run = await leaving.start(two_notes(str(effects.path), "a"), id="a")
        await until(lambda: waits(leaving, ["a"]))
        async with fleet_engine(url) as staying:
            await leaving.close()
            await staying.send("a", GoOn())
            assert await staying.get(run.id).result() == ["a 1", "a 2"]
        assert effects.counts() == Counter({"a 1": 1, "a 2": 1})

    run_async(main(), patience=30)
