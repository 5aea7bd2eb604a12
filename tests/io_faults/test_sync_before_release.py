"""At full durability nothing is released before it is synced: no step begins and no caller hears too early."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from io_faults.disk import Disk, State, put
from perdure import Engine, event, receive, step, workflow
from perdure.store.sqlite import SQLiteStore, bulk, inline_commit, writer
from support.lives import run_async

RUNS = 40
#: Steps of the run that is alone: some of its commits find the loop idle, which is what they are for.
ALONE = 60

#: The disk of the test that is running: steps mark in its log that they have begun.
disks: list[Disk] = []


@event
@dataclass
class Go:
    pass


@step
async def begin(run: str, number: int) -> int:
    disks[-1].mark(("step", run, number))
    return number


@workflow
async def some_steps(run: str, steps: int, waits: bool) -> str:
    """Before step n begins, the record of its start and those of n - 1 steps have to be on the disk."""
    for number in range(1, steps + 1):
        await begin(run, number)
    if waits:
        await receive(Go)
    return run


async def live(path: Path, disk: Disk, durability: str) -> None:
    """One run alone, whose small commits are made on the loop's thread; then many at once, by one statement."""
    store: Any = SQLiteStore(path, durability, vfs=disk.vfs)  # type: ignore[arg-type]
    async with Engine(store) as engine:
        alone = await engine.start(some_steps("alone", ALONE, True), id="alone")
        disk.mark(("started", "alone", 0))
        await engine.send("alone", Go(), key="go")
        disk.mark(("sent", "alone", 0))
        await alone.result()
        disk.mark(("result", "alone", 0))

        async def one(run: str) -> None:
            handle = await engine.start(some_steps(run, 3, False), id=run)
            disk.mark(("started", run, 0))
            await handle.result()
            disk.mark(("result", run, 0))

        await asyncio.gather(*[one(f"run-{number}") for number in range(RUNS)])


def broken_promises(disk: Disk, directory: Path) -> list[tuple[str, str, int]]:
    """What somebody heard, or did, that a power cut at that very moment would have undone."""
    state, broken = State(["a.db"]), []
    for position, entry in enumerate(disk.log):
        state.apply(entry)
        if entry.kind != "mark":
            continue
        what, run, number = entry.mark
        put(state.lost(), directory / str(position))
        connection = writer.apsw.Connection(str(directory / str(position) / "a.db"))
        try:
            kinds = [kind for (kind,) in connection.execute(
                "SELECT kind FROM journal JOIN runs ON key = run_key WHERE id = ? ORDER BY seq", (run,)
            )]  # fmt: skip
            unread = connection.execute("SELECT count(*) FROM inbox").fetchall()[0][0]
        except writer.apsw.SQLError:  # not even the schema
            kinds, unread = [], 0
        connection.close()
        kept = {
            "started": kinds[:1] == ["started"],
            "step": kinds[:number] == ["started", *["step_done"] * (number - 1)],
            "sent": unread == 1 or "event_received" in kinds,
            "result": kinds[-1:] == ["completed"],
        }
        if not kept[what]:
            broken.append(entry.mark)
    return broken


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_a_step_begins_and_a_caller_hears_only_what_a_power_cut_cannot_undo(
    tmp_path: Path, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS A6, B6, law 2: for commits on the loop's own thread, for the writer's, and for the bulk path. With
    `relaxed`, which promises less, the same look finds what would be undone: the test can fail."""
    ways: set[str] = set()
    try_inline, commit_all = writer.Writer._try_inline, bulk.commit_all

    def seen_here(self: writer.Writer, job: writer.Job) -> Any:
        outcome = try_inline(self, job)
        if outcome is not None:
            ways.add(f"here {job.function.__name__}")
        return outcome

    def seen_bulk(session: Any, requests: Any, *more: Any) -> Any:
        answers = commit_all(session, requests, *more)
        if answers is not None:
            ways.add("bulk turns" if any(turns for turns, _ in requests) else "bulk starts")
        return answers

    monkeypatch.setattr(writer.Writer, "_try_inline", seen_here)
    monkeypatch.setattr(bulk, "commit_all", seen_bulk)
    monkeypatch.setattr(inline_commit, "INLINE_SECONDS_MAX", 1.0)  # however slow this machine is just now
    disk = Disk()
    disks.append(disk)
    run_async(live(tmp_path / "a.db", disk, durability))
    disk.unregister()
    assert {"here commit_turns", "bulk turns", "bulk starts"} <= ways
    marks = [entry.mark for entry in disk.log if entry.kind == "mark"]
    assert len(marks) == 3 + ALONE + RUNS * 5
    broken = broken_promises(disk, tmp_path / "cuts")
    if durability == "full":
        assert broken == []
    else:
        assert len(broken) > len(marks) // 2
