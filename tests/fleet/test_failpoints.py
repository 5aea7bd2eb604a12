"""A worker of a fleet is killed at every point where it matters, and nobody says so: its lease runs out."""

from __future__ import annotations

import signal

import pytest

from perdure import Engine
from processes.dying import long_walk
from processes.failpoints import LEASE_SECONDS
from processes.test_failpoints import TAKE_OVER, WALK, killed
from processes.test_kill_points import check_marks, finish
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server
from support.processes import Process

#: In the middle of a transaction of SQLite.
OF_SQLITE = {"turn.in_store"}
POINTS = [(point, hits[-1]) for point, hits in WALK.items() if point not in OF_SQLITE]


@pytest.mark.parametrize(("point", "hit"), POINTS)
def test_a_worker_killed_at_a_failpoint(effects: Effects, point: str, hit: int) -> None:
    """CONFORMANCE W3, FAULTS A1 to A14, A17: the next worker goes on; only a step without a record runs again."""
    url = server().url(server().fresh_schema())
    killed("walk", url, str(effects.path), point, str(hit))
    finish(url, effects)
    check_marks(effects, repeated=1)


@pytest.mark.parametrize("point", TAKE_OVER)
def test_a_worker_killed_while_it_takes_over(effects: Effects, point: str) -> None:
    """CONFORMANCE W3, FAULTS A3, A4: nothing is appended by the worker that dies."""
    schema = server().fresh_schema()
    url = server().url(schema)
    killed("walk", url, str(effects.path), "turn.stored", "3")

    def records() -> list[tuple[object, ...]]:
        columns = "SELECT run_key, seq, kind, location FROM"
        return list(server().execute(f'{columns} "{schema}".journal ORDER BY 1, 2').fetchall())

    before = records()
    assert len(before) > 2
    killed("take_over", url, point, "1")
    assert records() == before
    finish(url, effects)
    check_marks(effects, repeated=1)


def test_two_workers_with_one_name_are_two(effects: Effects) -> None:
    """CONFORMANCE W3: the name is for people. One is killed; the other goes on with what it has and takes
    over the rest."""
    url = server().url(server().fresh_schema())

    async def main() -> None:
        async with Engine(url, name="same", sweep_interval=0.02, lease=LEASE_SECONDS) as engine:
            with Process("fleet.work:serve", url, "same") as child:
                child.expect("ready")
                both = await engine.store.workers()
                assert [worker.name for worker in both] == ["same", "same"]
                assert len({worker.id for worker in both}) == 2
                run = await engine.start(long_walk(str(effects.path)), id="run")
                child.kill()
                assert child.wait() == -signal.SIGKILL

                async def one_is_left() -> bool:
                    return len(await engine.store.workers()) == 1

                await until(one_is_left)
                assert engine.worker is not None
                assert [worker.id for worker in await engine.store.workers()] == [engine.worker.id]
            assert (await engine.status(run.id)).status != "failed"

    run_async(main())
    finish(url, effects)
    check_marks(effects, repeated=1)
