"""A read, write, sync or truncation fails: an error for the caller, the old state or the new, and it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from io_faults.disk import Break, Disk, State, put
from io_faults.life import CALLS, Dump, difference, dump, insist
from perdure.errors import StoreError, StoreUnavailable
from perdure.store.sqlite import SQLiteStore, wal
from perdure.testing.store.kit import new_run, turn


@pytest.fixture(autouse=True)
def _often_checkpointed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 2)
    monkeypatch.setattr(wal, "CHECKPOINT_PUT_OFF_FACTOR", 1)
    monkeypatch.setattr(wal, "CHECKPOINT_LOOK_TRANSACTIONS", 2)


def copy(path: Path, to: Path) -> Path:
    """What another process would find now: the database and its WAL."""
    to.mkdir(parents=True)
    for name in ("a.db", "a.db-wal"):
        if (path.parent / name).exists():
            shutil.copy(path.parent / name, to / name)
    return to / "a.db"


class Life:
    """One life of a store on a disk that fails once (or for a while), checked at every failure and every answer."""

    def __init__(self, directory: Path, plan: Break | None, states: list[Dump]) -> None:
        self._path = directory / "a.db"
        directory.mkdir()
        self._plan = plan
        self._states = states
        self.disk = Disk()
        self.failures = 0

    async def live(self) -> None:
        store = SQLiteStore(self._path, vfs=self.disk.vfs)
        await store.open()
        self.disk.counts.clear()
        self.disk.break_at = self._plan
        self.disk.mark("open")
        keys: dict[str, int] = {}
        for number, (name, call) in enumerate(CALLS.items()):
            await insist(lambda call=call: call(store, keys), failed=lambda n=number: self._failed(n))  # type: ignore[misc]
            self.disk.mark(name)
        self.disk.break_at = None
        await store.close()

    def _failed(self, number: int) -> None:
        """Old or new, never a third."""
        self.failures += 1
        if self._states:
            found = dump(copy(self._path, self._path.parent / f"failed-{self.failures}"))
            allowed = self._states[number : number + 2]
            assert found in allowed, f"{self.disk.broken}: {difference(found, allowed[0])}"

    def states(self) -> list[Dump]:
        """At each answer: what the disk holds for certain, whatever was not synced being lost."""
        found, state = [], State(["a.db"])
        for entry in self.disk.log:
            state.apply(entry)
            if entry.kind == "mark":
                directory = self._path.parent / f"cut-{len(found)}"
                put(state.lost(), directory)
                found.append(dump(directory / "a.db"))
        return found

    @property
    def final(self) -> Dump:
        return dump(self._path)


@pytest.fixture
def calm(tmp_path: Path) -> Iterator[Life]:
    """The same life on a disk that does not fail."""
    life = Life(tmp_path / "calm", None, [])
    asyncio.run(life.live())
    yield life
    life.disk.unregister()


@pytest.mark.parametrize(
    ("kind", "how", "times"),
    [
        *[(kind, how, times)
          for kind, how in [("write", "io"), ("write", "full"), ("write", "short"), ("sync", "io"), ("read", "io")]
          for times in (1, 4)],
        # Not for a while: then SQLite itself is deceived, see docs/decisions/0083.
        ("sync", "forgotten", 1),
        ("truncate", "io", 1),
    ],
)  # fmt: skip
def test_a_failing_disk_gives_the_old_state_or_the_new(
    tmp_path: Path, calm: Life, kind: str, how: str, times: int
) -> None:
    """FAULTS B5, B6, O14: at each such operation in a store's life, in commits of every kind and in checkpoints. The
    caller hears `StoreUnavailable` or nothing; repeated, the call succeeds once; what was answered survives a power cut
    right then, also after a sync that failed, when the system gave up what was to be synced."""
    states = calm.states()
    count = calm.disk.counts[kind]
    broken = failures = 0
    for number in range(1, count + 1, max(1, count // 8)):
        life = Life(tmp_path / f"{number}", Break(kind, number, how, times), states)
        asyncio.run(life.live())
        life.disk.unregister()
        broken += bool(life.disk.broken)
        failures += life.failures
        if kind == "sync" or number == 1:
            assert life.states() == states, f"an answer came before it was safe: {life.disk.broken}"
        assert life.final == calm.final, life.disk.broken
    assert broken > 0, "the faults really happened"
    if kind in ("write", "sync"):
        assert failures > 0, "and those in commits were heard of (a checkpoint is simply made later)"


@pytest.mark.parametrize(("kind", "how"), [("write", "io"), ("write", "full"), ("write", "short"), ("sync", "io")])
def test_a_disk_that_fails_while_a_store_is_opened(tmp_path: Path, kind: str, how: str) -> None:
    """FAULTS O14, A18: a typed error, from the first byte to the last of the migration; the next start works."""

    async def opened(path: Path, disk: Disk) -> bool:
        store = SQLiteStore(path, vfs=disk.vfs)
        try:
            await store.open()
        except StoreError as error:
            if str(path) not in str(error):
                raise AssertionError("the error does not name the file") from error
            return False
        await store.create(new_run("a"), turn(0, 2))
        await store.close()
        return True

    calm = Disk()
    assert asyncio.run(opened(tmp_path / "calm.db", calm))
    failed = 0
    for number in range(1, calm.counts[kind], 1 + calm.counts[kind] // 20):
        disk = Disk()
        disk.break_at = Break(kind, number, how)
        path = tmp_path / f"{number}.db"
        with contextlib.suppress(StoreUnavailable):  # when it was open by then, and the first call was hit
            failed += not asyncio.run(opened(path, disk))
        disk.unregister()
        assert asyncio.run(opened(path, calm)), f"after {disk.broken}"
        assert len(dump(path)["runs"]) == 1
    calm.unregister()
    assert failed >= 2


def test_a_full_disk_is_named_with_the_path_and_what_is_free(tmp_path: Path) -> None:
    """FAULTS B5: the error says what people need; with space again the same call works."""

    async def main() -> None:
        disk = Disk()
        store = SQLiteStore(tmp_path / "a.db", vfs=disk.vfs)
        await store.open()
        disk.break_at = Break("write", disk.counts["write"] + 1, "full", times=1_000)
        with pytest.raises(StoreUnavailable, match=r"no space left for .*a\.db: \d+ bytes are free"):
            await store.create(new_run("a"), turn(0, 2))
        assert await store.get("a") is None
        disk.break_at = None
        await store.create(new_run("a"), turn(0, 2))
        await store.close()
        disk.unregister()

    asyncio.run(main())
