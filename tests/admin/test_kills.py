"""What people do to a run while its worker is killed with SIGKILL: nothing is lost, nothing recorded is done twice."""

from __future__ import annotations

from pathlib import Path

import msgspec

from admin.flows import reaches
from admin.killed import fails_until_fixed, persists
from perdure import Engine
from perdure.store.model import Snapshot
from perdure.types import Status
from stores.store_kit import create, row_of
from support.effects import Effects
from support.lives import run_async, until
from support.processes import Process

WORK = "admin.killed:work"


def test_resumed_and_killed_in_the_step_that_is_tried_again(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE L4: the next life goes on from the resumed record."""
    database = str(tmp_path / "a.db")

    async def main() -> None:
        async with Engine(database, worker=False) as client:
            with Process(WORK, database) as first:
                first.expect("working")
                await client.start(fails_until_fixed(str(effects.path)), id="run")
                await reaches(client, "run", Status.FAILED)
                effects.path.with_suffix(".fixed").touch()
                assert await client.admin.resume("run")
                first.expect("in fragile")
                first.kill()
            with Process(WORK, database) as second:
                second.expect("working")
                second.expect("in fragile")
                effects.path.with_suffix(".free").touch()
                assert await client.result("run", timeout=20) == ["before", "fragile", "after"]

    run_async(main())
    assert effects.counts() == {"before": 1, "fragile": 4, "after": 1}


def test_paused_while_its_worker_is_killed(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE L4: it stays paused in the next life, and goes on when it is unpaused."""
    database = str(tmp_path / "a.db")
    effects.path.with_suffix(".fixed").touch()

    async def main() -> None:
        async with Engine(database, worker=False) as client:
            with Process(WORK, database) as first:
                first.expect("working")
                await client.start(fails_until_fixed(str(effects.path)), id="run")
                first.expect("in fragile")
                first.stop_between_writes(Path(database))  # it cannot notice
                assert await client.admin.pause("run")
                first.kill()
            with Process(WORK, database) as second:
                second.expect("working")

                async def freed() -> bool:
                    row = await client.store.get("run")
                    return row is not None and row.owner is None

                await until(freed)
                assert (await client.status("run")).status is Status.PAUSED
                effects.path.with_suffix(".free").touch()
                assert await client.admin.unpause("run")
                assert await client.result("run", timeout=20) == ["before", "fragile", "after"]

    run_async(main())
    assert effects.counts() == {"before": 1, "fragile": 2, "after": 1}


def test_paused_a_zombie_cannot_commit(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE L4, W3: its worker sleeps through the pause and the unpause; its late result is refused."""
    database = str(tmp_path / "a.db")
    effects.path.with_suffix(".fixed").touch()

    async def main() -> None:
        async with Engine(database, worker=False) as client:
            with Process(WORK, database) as zombie, Process(WORK, database) as other:
                zombie.expect("working")
                other.expect("working")
                await client.start(fails_until_fixed(str(effects.path)), id="run")
                row = await row_of(client.store, "run")
                await until(lambda: effects.counts().get("fragile") == 1)
                row = await row_of(client.store, "run")
                pids = {worker.id: worker.pid for worker in await client.store.workers()}
                holder, free = (zombie, other) if pids[row.owner] == zombie.pid else (other, zombie)
                holder.expect("in fragile")
                holder.signal(19)
                assert await client.admin.pause("run")
                assert await client.admin.unpause("run")
                free.expect("in fragile")
                effects.path.with_suffix(".free").touch()
                assert await client.result("run", timeout=20) == ["before", "fragile", "after"]
                holder.signal(18)  # SIGCONT: it goes on with what it had in memory

                async def quiet() -> bool:
                    return (await client.status("run")).records == 5

                await until(quiet)
                assert [entry.kind for entry in await client.admin.history("run")].count("step_done") == 3

    run_async(main())
    assert effects.counts()["after"] == 1


def test_retried_and_killed_in_the_attempt(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE L4: the backoff stays over in the next life."""
    database = str(tmp_path / "a.db")

    async def main() -> None:
        async with Engine(database, worker=False) as client:
            with Process(WORK, database) as first:
                first.expect("working")
                await client.start(persists(str(effects.path)), id="run")

                async def backs_off() -> bool:
                    return any(wait.until for wait in (await client.status("run")).waiting)

                await until(backs_off)
                effects.path.with_suffix(".fixed").touch()
                await client.admin.retry("run")
                first.expect("in fragile")
                first.kill()
            with Process(WORK, database) as second:
                second.expect("working")
                second.expect("in fragile")
                effects.path.with_suffix(".free").touch()
                assert await client.result("run", timeout=20) == ["before", "fragile", "after"]

    run_async(main())
    assert effects.counts() == {"before": 1, "fragile": 3, "after": 1}


def test_a_prune_that_is_killed_leaves_whole_runs_and_can_be_repeated(tmp_path: Path) -> None:
    """CONFORMANCE L4, FAULTS A19: each run is there with all of its journal, or gone with all of it."""
    database = str(tmp_path / "a.db")

    async def main() -> None:
        async with Engine(database, worker=False) as client:
            store = client.store
            key = await create(store, "first", owner=None)
            await store.terminate("first", "", 5)
            (loaded,) = await store.load([key])
            for number in range(999):
                row = msgspec.structs.replace(loaded.run, id=f"r{number}")
                await store.restore(Snapshot(run=row, journals={1: loaded.rows}))
            with Process("admin.killed:prune_and_die", database) as dying:
                assert dying.wait() == -9
            left = await client.list(limit=1000)
            assert len(left) == 700
            for view in left:
                assert len(await client.admin.history(view.id)) == 2
            assert await client.admin.prune(0) == 700
            assert await client.list() == []

    run_async(main())
