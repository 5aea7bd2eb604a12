"""The power fails at any write, sync or truncation: the file is whole, and what was acknowledged is in it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from io_faults.disk import Disk, Entry, State, put
from io_faults.life import CALLS, Dump, dump
from perdure.store.sqlite import SQLiteStore, bulk, wal, writer
from perdure.store.turn import Existing
from perdure.testing.store.kit import accept, event, new_run, step_row, turn


@pytest.fixture
def disk() -> Iterator[Disk]:
    one = Disk()
    yield one
    one.unregister()


@pytest.fixture
def _often_checkpointed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The WAL is copied into the database several times within one short life, so cuts fall into that as well."""
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 2)
    monkeypatch.setattr(wal, "CHECKPOINT_PUT_OFF_FACTOR", 1)
    monkeypatch.setattr(wal, "CHECKPOINT_LOOK_TRANSACTIONS", 2)


async def live(path: Path, disk: Disk, durability: str = "full") -> None:
    """Every way of committing, one after another; each acknowledgement is marked in the log of the disk."""
    store = SQLiteStore(path, durability, vfs=disk.vfs)  # type: ignore[arg-type]
    await store.open()
    keys: dict[str, int] = {}
    disk.mark("open")
    for name, call in CALLS.items():
        await call(store, keys)
        disk.mark(name)
    await store.close()
    disk.mark("closed")


class Cuts:
    """The log of one life, and what is to be found if the power fails at a given place in it."""

    def __init__(self, log: list[Entry], directory: Path) -> None:
        self.log = log
        self._directory = directory
        self._number = 0
        self._known: dict[tuple[tuple[str, bytes], ...], Dump] = {}

    def read(self, files: dict[str, bytes]) -> Dump:
        """Many places in the log leave the same bytes; each is looked at once."""
        key = tuple(sorted(files.items()))
        if key not in self._known:
            self._number += 1
            put(files, self._directory / str(self._number))
            self._known[key] = dump(self._directory / str(self._number) / "a.db")
        return self._known[key]

    def states(self) -> list[Dump]:
        """What the file held at each mark: the only states there are."""
        state, found = State(["a.db"]), []
        for entry in self.log:
            state.apply(entry)
            if entry.kind == "mark":
                found.append(self.read(state.seen()))
        return found


@pytest.mark.usefixtures("_often_checkpointed")
@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_a_power_cut_anywhere_leaves_a_state_that_was(tmp_path: Path, disk: Disk, durability: str) -> None:
    """FAULTS B6: unsynced writes are lost, kept or torn at every place of a store's life, from its first migration to
    its last checkpoint. FULL: the state is the last acknowledged one or that of the call under way. Relaxed: an earlier
    one may come back, but never a state that was not."""
    asyncio.run(live(tmp_path / "a.db", disk, durability))
    cuts = Cuts(disk.log, tmp_path / "cuts")
    states = cuts.states()
    assert all(before != after for before, after in itertools.pairwise(states[:-1])), "each call shows"
    rng, state, acknowledged, looked = random.Random(7), State(["a.db"]), -1, 0
    for position, entry in enumerate(disk.log):
        state.apply(entry)
        if entry.kind == "mark":
            acknowledged += 1
        following = states[min(acknowledged + 1, len(states) - 1)]
        allowed = [states[max(acknowledged, 0)], following]
        if durability == "relaxed":
            allowed += states[: max(acknowledged, 0)]
        for how, files in state.after_cuts(rng, chances=1):
            found = cuts.read(files)
            assert found in allowed, f"{how} after entry {position} ({entry.kind} {entry.file} {entry.mark})"
            looked += 1
    assert looked > 100
    assert disk.counts["sync"] >= (8 if durability == "full" else 2)


def test_the_cuts_would_find_a_missing_sync(tmp_path: Path, disk: Disk) -> None:
    """The test above can fail: with `relaxed` durability the acknowledged is lost at a cut, and this shows it."""
    asyncio.run(live(tmp_path / "a.db", disk, "relaxed"))
    cuts = Cuts(disk.log, tmp_path / "cuts")
    states = cuts.states()
    state, marks = State(["a.db"]), -1
    lost: list[str] = []
    for entry in disk.log:
        state.apply(entry)
        if entry.kind == "mark":
            marks += 1
            if cuts.read(state.lost()) != states[marks]:
                lost.append(entry.mark)
    assert set(CALLS) <= set(lost)


def test_full_durability_syncs_before_each_acknowledgement(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For commits on the loop's own thread, by the writer's thread, and by the one statement of the bulk path: the last
    thing that happens to the WAL before the answer is a sync."""
    ways: list[str] = []
    try_inline, commit_all = writer.Writer._try_inline, bulk.commit_all

    def counted_here(self: writer.Writer, job: writer.Job) -> object:
        outcome = try_inline(self, job)
        ways.append("here" if outcome is not None else "queued")
        return outcome

    def counted_bulk(*args: object) -> object:
        answers = commit_all(*args)  # type: ignore[arg-type]
        if answers is not None:
            ways.append("bulk")
        return answers

    monkeypatch.setattr(writer.Writer, "_try_inline", counted_here)
    monkeypatch.setattr(bulk, "commit_all", counted_bulk)
    asyncio.run(live(tmp_path / "a.db", disk))
    assert ways.count("here") >= 3
    assert ways.count("bulk") >= 2
    last, wrote, checked = "", 0, 0
    for entry in disk.log:
        if entry.file == "a.db-wal" and entry.kind in ("write", "sync"):
            last = entry.kind
            wrote += entry.kind == "write"
        if entry.mark in CALLS:
            assert last == "sync", entry.mark
            assert wrote > 0, entry.mark
            wrote, checked = 0, checked + 1
    assert checked == len(CALLS)


async def _ask_to_create(store: SQLiteStore) -> bool:
    return isinstance(await store.create(new_run("a"), turn(0, 2)), Existing)


async def _ask_to_append(store: SQLiteStore) -> bool:
    return (await store.append("a", event(dedup="once"), 100)).delivery is None


async def _ask_to_commit(store: SQLiteStore) -> bool:
    return (await accept(store, turn(1, 2, step_row(2)))).repeated


async def _look(store: SQLiteStore) -> bool:
    row = await store.get("a")
    return row is not None and row.next_seq == 3


@pytest.mark.parametrize("ask", [_ask_to_create, _ask_to_append, _ask_to_commit, _look])
def test_what_a_killed_process_left_unsynced_is_synced_before_anybody_hears_of_it(
    tmp_path: Path, disk: Disk, ask: Callable[[SQLiteStore], Awaitable[bool]]
) -> None:
    """FAULTS A2, B6: a process is killed after it wrote and before it synced. The next process that opens the file
    finds the change; asked to make it again the store says that it is there, and shows it to readers. By then it must
    have been synced: what somebody has heard of survives a power cut."""

    async def first() -> None:
        store = SQLiteStore(tmp_path / "a.db", vfs=disk.vfs)
        await store.open()
        if ask is not _ask_to_create:
            await store.create(new_run("a"), turn(0, 2))
        if ask is not _look:
            await ask(store)
        else:
            await _ask_to_commit(store)
        await store.close()

    asyncio.run(first())
    last = max(number for number, entry in enumerate(disk.log) if (entry.kind, entry.file) == ("write", "a.db-wal"))
    state = State(["a.db"])
    for entry in disk.log[: last + 1]:
        state.apply(entry)
    put(state.seen(), tmp_path / "killed")
    second = Disk()

    async def again() -> None:
        store = SQLiteStore(tmp_path / "killed" / "a.db", vfs=second.vfs)
        await store.open()
        assert await ask(store), "the change is there"
        second.mark("heard")
        await store.close()

    asyncio.run(again())
    for entry in itertools.takewhile(lambda one: one.mark != "heard", second.log):
        state.apply(entry)
    second.unregister()
    put(state.seen(), tmp_path / "seen")
    put(state.lost(), tmp_path / "cut")
    assert dump(tmp_path / "cut" / "a.db") == dump(tmp_path / "seen" / "a.db")
