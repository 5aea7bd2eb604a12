"""Changed code and damaged journals are noticed in loops too, although most of their records are gone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Break, event, loop, patched, receive, step, workflow
from perdure.errors import RunParked
from perdure.types import Status
from support.effects import Effects
from support.lives import Lives, run_async, until


@event
@dataclass
class Item:
    number: int


@step
async def note(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return line


#: What the second life finds in the place of the code that the first one ran.
CODE = {"version": "first"}


async def body(path: str, number: int) -> int | Break[int]:
    if CODE["version"] == "patched" and patched("greet"):
        await note(path, f"hello {number}")
    if CODE["version"] == "step added":
        await note(path, "new")
    await note(path, f"begin {number}")
    item = await receive(Item)
    return Break(number) if item.number < 0 else number + 1


@workflow
async def changing(path: str) -> Any:
    async def once(number: int) -> int | Break[int]:
        return await body(path, number)

    match CODE["version"]:
        case "renamed":
            return await loop(once, 0, keep=0, name="other")
        case "no loop":
            return await note(path, "no loop any more")
        case "in a saga":
            return await loop(once, 0, keep=0, commit_every=3)
        case _:
            return await loop(once, 0, keep=0)


async def _is_at(engine: Any, location: str) -> bool:
    return any(wait.location == location for wait in (await engine.status("run")).waiting)


async def _first_life(lives: Lives, path: str) -> None:
    CODE["version"] = "first"
    engine = lives.engine()
    await engine.open()
    await engine.start(changing(path), id="run")
    for number in range(5):
        await engine.send("run", Item(number))
    await until(lambda: _is_at(engine, "loop~6/receive"))
    await lives.crash(engine)


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("renamed", "loop 'loop~5'"),
        ("no loop", "no longer matches its journal"),
        ("step added", "no longer matches its journal"),
    ],
)
def test_a_loop_whose_code_changed_parks_before_any_side_effect(
    lives: Lives, effects: Effects, version: str, says: str
) -> None:
    """CONFORMANCE C4, V1: the state of the loop is a record like any other; with the old code it goes on."""

    async def main() -> None:
        await _first_life(lives, str(effects.path))
        before = effects.lines()
        CODE["version"] = version
        async with lives.engine() as engine:
            await engine.send("run", Item(9))
            with pytest.raises(RunParked):
                await engine.result("run", timeout=10)
            view = await engine.status("run")
            assert view.reason is not None
            assert says in view.reason
            assert effects.lines() == before
            CODE["version"] = "first"
            assert await engine.admin.resume("run")
            await engine.send("run", Item(-1))
            assert await engine.result("run", timeout=10) == 6

    run_async(main())


def test_a_patch_in_the_body_begins_with_the_next_iteration(lives: Lives, effects: Effects) -> None:
    """The iteration under way keeps to the old code, those after it take the new way."""

    async def main() -> None:
        await _first_life(lives, str(effects.path))
        CODE["version"] = "patched"
        async with lives.engine() as engine:
            await engine.send("run", Item(1))
            await engine.send("run", Item(-1))
            assert await engine.result("run", timeout=10) == 6
        assert effects.lines() == [*[f"begin {n}" for n in range(6)], "hello 6", "begin 6"]

    run_async(main())


@pytest.mark.parametrize("commit_every", ["first", "in a saga"])
def test_another_commit_interval_is_no_change_of_the_code(lives: Lives, effects: Effects, commit_every: str) -> None:
    async def main() -> None:
        await _first_life(lives, str(effects.path))
        CODE["version"] = commit_every
        async with lives.engine() as engine:
            for number in (1, 1, 1, -1):
                await engine.send("run", Item(number))
            assert await engine.result("run", timeout=10) == 8

    run_async(main())


def test_a_missing_record_is_noticed_although_others_were_pruned(tmp_path: Path, effects: Effects) -> None:
    """FAULTS B10: what was pruned is counted, so anything else that is gone shows."""
    lives = Lives("sqlite", tmp_path)

    async def main() -> None:
        await _first_life(lives, str(effects.path))
        connection = apsw.Connection(str(lives.path))
        last = connection.execute("SELECT max(seq) FROM journal WHERE kind = 'step_done'").fetchone()[0]
        connection.execute("DELETE FROM journal WHERE seq = ?", (last,))
        connection.close()
        async with lives.engine() as engine:
            await engine.send("run", Item(1))
            with pytest.raises(RunParked):
                await engine.result("run", timeout=10)
            view = await engine.status("run")
            assert view.status is Status.PARKED
            assert view.reason is not None
            assert "CorruptRecord" in view.reason
            assert "were pruned" in view.reason

    run_async(main())
