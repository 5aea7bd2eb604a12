"""A crowd moves from SQLite to another store under load, and the process that moves it is killed again and again."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from moving.crowd import Crowd, told
from perdure import Engine
from perdure.cli.migrate import url_of
from perdure.errors import RunMoved
from perdure.store import open_store
from perdure.store.model import Status
from support import postgres
from support.lives import STORES, run_async
from support.processes import Process

#: Call, moment, and which one of that name: where the movers die, one after another.
THREE = [("receive", "after", 1), ("depart", "after", 1), ("leave", "after", 1)]
TWENTY = [
    ("receive", "before", 1), ("receive", "after", 1), ("confirm", "before", 3), ("confirm", "after", 5),
    ("pack", "after", 8), ("confirm", "after", 10), ("receive", "after", 7), ("received", "after", 2),
    ("count_runs", "before", 1), ("depart", "before", 1), ("depart", "after", 1), ("receive", "after", 2),
    ("confirm", "before", 2), ("confirm", "after", 1), ("pack", "after", 3), ("leave", "before", 1),
    ("leave", "after", 1), ("remainder", "after", 1), ("arrive", "before", 1), ("arrive", "after", 1),
]  # fmt: skip


def migrate(*arguments: str) -> list[dict[str, Any]]:
    """The command, in a process of its own: its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "migrate", *arguments, "--json"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def die_one_after_another(old: str, new: str, deaths: list[tuple[str, str, int]]) -> None:
    for name, moment, at in deaths:
        with Process("moving.dying:move", old, new, name, moment, str(at)) as mover:
            code = await asyncio.to_thread(mover.wait)
            assert code == -signal.SIGKILL, f"the mover was to die {moment} {name} {at}, and ended with {code}"


async def move_under_load(crowd: Crowd, old: str, new: str, deaths: list[tuple[str, str, int]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    async with Engine(old, sweep_interval=0.1) as engine:
        began = time.monotonic()
        handles = await crowd.begin(engine)
        figures["filled in"] = time.monotonic() - began
        waiting = asyncio.ensure_future(told(handles[:30]))
        load = asyncio.ensure_future(crowd.load(engine, 0.005))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await die_one_after_another(old, new, deaths)
        lines = await asyncio.to_thread(migrate, old, new)
        figures["moved in"] = time.monotonic() - began
        figures["report"] = lines[-1]
        target = lines[-1]["target"]
        started, location, figures["load waited"] = await load
        figures["started meanwhile"] = started
        assert location == target
        # With the children, without one of those that wait for something to end.
        assert lines[-1]["open"] >= 16 * crowd.each - 1
        # 30 wait for results: each is told, none is left waiting.
        locations = await asyncio.wait_for(waiting, 30)
        assert len(locations) == 30
        assert set(locations) == {target}
        figures["told"] = len(locations)
        with pytest.raises(RunMoved) as error:
            await engine.cancel("open-receives-0")
        assert error.value.location == target
        assert not await engine.list(status=["pending", "running", "waiting"])
    async with Engine(new, sweep_interval=0.1) as engine:
        began = time.monotonic()
        crowd.check(await crowd.finish(engine))
        figures["finished in"] = time.monotonic() - began
        results = await asyncio.gather(*(engine.result(f"load-{number}") for number in range(started)))
        assert results == [2 * number + 1 for number in range(started)]
        counts = await engine.admin.counts()
        parents = crowd.each
        assert counts == {Status.COMPLETED: crowd.ended + crowd.each * 15 + parents + started}
    verified = migrate(old, new, "--verify")[-1]
    assert verified["different"] == []
    assert verified["same"] + verified["went_on"] == sum(counts.values())
    figures["verified"] = verified
    return figures


def urls(directory: Path) -> tuple[str, str]:
    old = url_of(open_store(str(directory / "old.db")))
    if "postgres" not in STORES:
        return old, url_of(open_store(str(directory / "new.db")))
    return old, postgres.server().url(postgres.server().fresh_schema(keep_sessions=True))


def test_a_crowd_moves_under_load_though_its_mover_is_killed(tmp_path: Path) -> None:
    """FAULTS O28: each run ends once, what was unread is read, and callers of the old store are told where it is."""
    crowd = Crowd(str(tmp_path / "effects"), ended=150, each=4, seconds=6.0)
    run_async(move_under_load(crowd, *urls(tmp_path), THREE), 120)


@pytest.mark.long
def test_twenty_thousand_runs_move_though_the_mover_is_killed_twenty_times(tmp_path: Path) -> None:
    """The same with 18,000 ended and more than 2,000 open runs; prints its figures."""
    crowd = Crowd(str(tmp_path / "effects"), ended=18_000, each=135, seconds=60.0)
    assert len(TWENTY) == 20
    figures = run_async(move_under_load(crowd, *urls(tmp_path), TWENTY), 580)
    print(json.dumps(figures, indent=1), file=sys.stderr)
