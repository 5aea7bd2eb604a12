"""The store suite can fail: each of these stores has one thing wrong, and is found out."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.store.memory import MemoryStore, inbox, workers
from perdure.store.memory.turns import commit_turn
from perdure.store.model import Appended, Delivery, NewItem, NewRun, News, Release, RunFilter, RunKey, RunRow, Status
from perdure.store.turn import CommitResult, Committed, Rejected, Turn
from perdure.testing.store import CHECKS, World


class OneByOne(MemoryStore):
    """Commits turn by turn, so that a broken one can put something between."""

    def commit(self, turns: Sequence[Turn]) -> asyncio.Future[Sequence[CommitResult]]:
        future: asyncio.Future[Sequence[CommitResult]] = asyncio.get_running_loop().create_future()
        future.set_result([self._one(turn) for turn in turns])
        return future

    def _one(self, turn: Turn) -> CommitResult:
        return commit_turn(self.tables, turn)


class NoEpochCheck(OneByOne):
    def _one(self, turn: Turn) -> CommitResult:
        run = self.tables.runs.get(turn.key)
        if run is not None and run.epoch != turn.epoch:
            run.epoch = turn.epoch
        return super()._one(turn)


class NoSequenceCheck(OneByOne):
    def _one(self, turn: Turn) -> CommitResult:
        run = self.tables.runs.get(turn.key)
        if run is not None and run.next_seq < turn.expected_seq:
            run.next_seq = turn.expected_seq
        return super()._one(turn)


class DoesNotRecogniseRepeats(OneByOne):
    def _one(self, turn: Turn) -> CommitResult:
        result = super()._one(turn)
        return Rejected(reason="again") if isinstance(result, Committed) and result.repeated else result


class ConsumesNothing(OneByOne):
    def _one(self, turn: Turn) -> CommitResult:
        run = self.tables.runs.get(turn.key)
        unread = {} if run is None else dict(run.inbox)
        result = super()._one(turn)
        if run is not None and isinstance(result, Committed):
            run.inbox.update(unread)
        return result


class TakesConsumedTwice(OneByOne):
    def _one(self, turn: Turn) -> CommitResult:
        run = self.tables.runs.get(turn.key)
        if run is not None and run.accepts(turn):
            turn = msgspec.structs.replace(turn, consumed=[item for item in turn.consumed if item in run.inbox])
        return super()._one(turn)


class TerminalIsNotAbsorbing(MemoryStore):
    async def terminate(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        inbox.existing(self.tables, run_id).status = Status.RUNNING
        return await super().terminate(run_id, reason, at)


class ForgetsKeys(MemoryStore):
    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Appended:
        inbox.existing(self.tables, run_id).dedup.clear()
        return await super().append(run_id, item, pending_max)


class DropsWhenFull(MemoryStore):
    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Appended:
        run = inbox.existing(self.tables, run_id)
        if run.unread[item.type] >= pending_max:
            return Appended(delivery=None)
        return await super().append(run_id, item, pending_max)


class ClaimsTwice(MemoryStore):
    async def claim(
        self, worker_id: str, at: int, limit: int, suspects_max: int = 1, unknown: Sequence[tuple[str, str]] = ()
    ) -> Sequence[RunRow]:
        unowned = dict(self.tables.unowned)
        rows = await super().claim(worker_id, at, limit, suspects_max, unknown)
        self.tables.unowned.update(unowned)
        return rows


class ClaimsEarly(MemoryStore):
    async def claim(
        self, worker_id: str, at: int, limit: int, suspects_max: int = 1, unknown: Sequence[tuple[str, str]] = ()
    ) -> Sequence[RunRow]:
        return await super().claim(worker_id, at + 1, limit, suspects_max, unknown)


class LosesWakeUps(MemoryStore):
    async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
        await super().release(
            worker_id,
            [
                Release(key=r.key, epoch=r.epoch, seen_item=10**9, ready_at=r.ready_at, reason=r.reason)
                for r in releases
            ],
        )


class AnyoneReleases(MemoryStore):
    async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
        for each in releases:
            if (run := self.tables.runs.get(each.key)) is not None and run.owner is not None:
                run.owner = worker_id
        await super().release(worker_id, releases)


class ReapsTheLiving(MemoryStore):
    async def reap(self, worker_id: str, at: int) -> int:
        return workers.free(
            self.tables, {run.owner for run in self.tables.runs.values() if run.owner not in (None, worker_id)}
        )  # type: ignore[arg-type]


class NormalisesIds(MemoryStore):
    async def create(self, new: NewRun, turn: Turn | None) -> Any:
        return await super().create(msgspec.structs.replace(new, id=unicodedata.normalize("NFC", new.id)), turn)


class StopsAtNul(MemoryStore):
    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Appended:
        return await super().append(
            run_id, msgspec.structs.replace(item, data=item.data.partition(b"\0")[0]), pending_max
        )


class ListsOldestFirst(MemoryStore):
    async def list_runs(self, where: RunFilter, limit: int, before: RunKey | None = None) -> Sequence[RunRow]:
        return list(await super().list_runs(where, limit, before))[::-1]


class TakesPrefixesForPatterns(MemoryStore):
    async def list_runs(self, where: RunFilter, limit: int, before: RunKey | None = None) -> Sequence[RunRow]:
        import fnmatch

        rows = await super().list_runs(msgspec.structs.replace(where, id_prefix=None), 1_000, before)
        prefix = (where.id_prefix or "").replace("%", "*")
        return [row for row in rows if fnmatch.fnmatchcase(row.id, prefix + "*")][:limit]


class NewsSkipsOne(MemoryStore):
    async def news(self, worker_id: str, cursor: int) -> News:
        news = await super().news(worker_id, cursor)
        return News(cursor=news.cursor, items=list(news.items)[1:], ended=news.ended)


class CountsNothingAsARecovery(MemoryStore):
    async def claim(self, *args: Any, **kwargs: Any) -> Sequence[RunRow]:
        rows = await super().claim(*args, **kwargs)
        for row in rows:
            self.tables.runs[row.key].recoveries = 0
        return [self.tables.runs[row.key].row() for row in rows]


class ParkLosesTheInbox(MemoryStore):
    async def park(self, key: RunKey, epoch: int, reason: str, at: int) -> bool:
        parked = await super().park(key, epoch, reason, at)
        if parked:
            self.tables.runs[key].inbox.clear()
        return parked


class HalfATurn(OneByOne):
    """Writes the records of a turn that it then refuses."""

    def _one(self, turn: Turn) -> CommitResult:
        result = super()._one(turn)
        if not isinstance(result, Committed) and (run := self.tables.runs.get(turn.key)) is not None:
            run.updated_at = turn.at + 1
        return result


class OneRefusalSpoilsAll(MemoryStore):
    def commit(self, turns: Sequence[Turn]) -> asyncio.Future[Sequence[CommitResult]]:
        future: asyncio.Future[Sequence[CommitResult]] = asyncio.get_running_loop().create_future()
        results: list[CommitResult] = []
        for turn in turns:
            refused = next((r for r in results if not isinstance(r, Committed)), None)
            results.append(refused if refused is not None else commit_turn(self.tables, turn))
        future.set_result(results)
        return future


class HoldsNothing(MemoryStore):
    async def held(self, worker_id: str) -> Mapping[RunKey, int]:
        return {}


class FloatTimes(MemoryStore):
    async def create(self, new: NewRun, turn: Turn | None) -> Any:
        created = await super().create(new, turn)
        run = self.tables.by_id[new.id]
        run.created_at = int(float(run.created_at))
        return created


class NoneIsNothing(OneByOne):
    """Takes an empty payload for an absent one."""

    def _one(self, turn: Turn) -> CommitResult:
        result = super()._one(turn)
        if (run := self.tables.runs.get(turn.key)) is not None:
            run.frontier, run.state = run.frontier or None, run.state or None
        return result


BROKEN = [cls for cls in list(globals().values()) if isinstance(cls, type) and issubclass(cls, MemoryStore)]
BROKEN = [cls for cls in BROKEN if cls not in (MemoryStore, OneByOne)]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: cls.__name__)
def test_a_broken_store_is_found_out(broken: type[MemoryStore], tmp_path: Path) -> None:
    """By a failing assert, not by an accident of the check."""
    failed: list[str] = []
    for number, check in enumerate(CHECKS):
        if check.id.startswith("engines") or failed:
            continue
        stores: dict[Path, MemoryStore] = {}
        directory = tmp_path / str(number)
        directory.mkdir()
        try:
            check(World(lambda where, stores=stores: stores.setdefault(where, broken()), directory))  # type: ignore[misc]
        except (AssertionError, pytest.fail.Exception):
            failed.append(check.id)
        except Exception as error:
            failed.append(f"{check.id}: {error!r}")
    assert failed, f"nothing is wrong with {broken.__name__}, says the suite"


def test_there_are_many_of_them() -> None:
    assert len(BROKEN) >= 20


def test_the_suite_needs_one_import_and_a_factory(tmp_path: Path) -> None:
    from testing.test_plugin import run_pytest, write

    write(
        tmp_path,
        "test_my_store.py",
        """
        import functools
        from perdure.store.memory import MemoryStore
        from perdure.testing.store import store_suite

        TestMyStore = store_suite(functools.cache(lambda directory: MemoryStore()))
        """,
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{len(CHECKS)} passed" in done.stdout
