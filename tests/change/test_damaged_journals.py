"""A journal that cannot be understood parks its run with the reason; the other runs go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from events.kinds import Note
from perdure import receive, step, workflow
from perdure.errors import RunParked
from perdure.types import Status
from support.lives import Lives, run_async, until


@step
async def three_times(text: str) -> str:
    return text * 3


@workflow
async def keeps_a_journal() -> str:
    first = await three_times("a")
    second = await three_times("b")
    await receive(Note)
    return first + second


Damage = Callable[[apsw.Connection], None]


def flip_a_byte(connection: apsw.Connection) -> None:
    (data,) = connection.execute("SELECT data FROM journal WHERE run_key = 1 AND seq = 2").fetchone()
    position = data.index(b"aaa")
    changed = data[:position] + b"aba" + data[position + 3 :]
    connection.execute("UPDATE journal SET data = ? WHERE run_key = 1 AND seq = 2", (changed,))


def cut_a_row(connection: apsw.Connection) -> None:
    connection.execute("UPDATE journal SET data = substr(data, 1, 5) WHERE run_key = 1 AND seq = 2")


def unknown_kind(connection: apsw.Connection) -> None:
    connection.execute("UPDATE journal SET kind = 'teleported' WHERE run_key = 1 AND seq = 2")


def missing_row(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM journal WHERE run_key = 1 AND seq = 2")


def missing_last_row(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM journal WHERE run_key = 1 AND seq = 3")


def damaged_start(connection: apsw.Connection) -> None:
    connection.execute("UPDATE journal SET data = CAST('{}' AS BLOB) WHERE run_key = 1 AND seq = 1")


def damaged_frontier(connection: apsw.Connection) -> None:
    connection.execute("UPDATE runs SET frontier = CAST('{\"seq\":' AS BLOB) WHERE key = 1")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (flip_a_byte, "record 2 (step_done at 'three_times') does not match its checksum"),
        (cut_a_row, "record 2 (step_done at 'three_times') does not match its checksum"),
        (unknown_kind, "record 2 is of the kind 'teleported', which this release does not know"),
        (missing_row, "record 2 is missing: the journal goes on with record 3"),
        (missing_last_row, "the journal should end with record 3 but has 2 records"),
        (damaged_start, "record 1"),
    ],
    ids=["flipped byte", "cut row", "unknown kind", "missing record", "missing last record", "damaged start"],
)
def test_a_damaged_journal_parks_only_its_run(tmp_path: Path, damage: Damage, says: str) -> None:
    """FAULTS B9, B10, B11: the reason names the record; the run beside it finishes."""
    lives = Lives("sqlite", tmp_path)

    async def main() -> None:
        await two_waiting_runs(lives)
        connection = apsw.Connection(str(lives.path))
        damage(connection)
        connection.close()
        async with lives.engine() as engine:
            for run_id in ("damaged", "whole"):
                await engine.send(run_id, Note("go"))
            assert await engine.result("whole", timeout=10) == "aaabbb"
            with pytest.raises(RunParked):
                await engine.get("damaged").result(timeout=10)
            view = await engine.status("damaged")
            assert view.status is Status.PARKED
            assert view.reason is not None
            assert view.reason.startswith("CorruptRecord: ")
            assert says in view.reason
            assert "P-306" in view.reason

    run_async(main())


def test_a_damaged_frontier_parks_only_its_run(tmp_path: Path) -> None:
    """FAULTS B9: what a run waits for is stored beside the journal, and checked as well."""
    lives = Lives("sqlite", tmp_path)

    async def main() -> None:
        await two_waiting_runs(lives)
        connection = apsw.Connection(str(lives.path))
        damaged_frontier(connection)
        connection.close()
        async with lives.engine() as engine:
            for run_id in ("damaged", "whole"):
                await engine.send(run_id, Note("go"))
            assert await engine.result("whole", timeout=10) == "aaabbb"
            with pytest.raises(RunParked):
                await engine.get("damaged").result(timeout=10)
            assert (await engine.status("damaged")).status is Status.PARKED

    run_async(main())


def test_a_repaired_journal_is_resumed(tmp_path: Path) -> None:
    """FAULTS B9: parked is not lost; with the bytes restored the run finishes."""
    lives = Lives("sqlite", tmp_path)

    async def main() -> None:
        await two_waiting_runs(lives)
        connection = apsw.Connection(str(lives.path))
        (good,) = connection.execute("SELECT data FROM journal WHERE run_key = 1 AND seq = 2").fetchone()
        flip_a_byte(connection)
        async with lives.engine() as engine:
            await engine.send("damaged", Note("go"))
            with pytest.raises(RunParked):
                await engine.get("damaged").result(timeout=10)
            connection.execute("UPDATE journal SET data = ? WHERE run_key = 1 AND seq = 2", (good,))
            assert await engine.admin.resume("damaged")
            assert await engine.result("damaged", timeout=10) == "aaabbb"
        connection.close()

    run_async(main())


async def two_waiting_runs(lives: Lives) -> None:
    """Two runs with two records each, waiting for a note, and no worker any more."""
    engine = lives.engine()
    await engine.open()
    for run_id in ("damaged", "whole"):
        await engine.start(keeps_a_journal(), id=run_id)

    async def both_wait() -> bool:
        views = [await engine.status(run_id) for run_id in ("damaged", "whole")]
        return all(view.records == 3 and view.status is Status.WAITING for view in views)

    await until(both_wait)
    await lives.crash(engine)
