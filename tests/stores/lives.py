"""Random lives of runs: the same calls on the memory store, which is the reference, and on another one.

Turns of every kind, alone and in groups, most of them right and some late; clients, people and workers at them.
After each call both stores have answered the same and show the same, so that whatever a store forgets to look at makes
a difference sooner or later. `mutations.sql_catching` measures how much is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from perdure.kernel.definitions import EventPolicy
from perdure.kernel.items import ChildNotice, child_item
from perdure.limits import NEVER
from perdure.store.memory import events as memory_events
from perdure.store.model import (
    TERMINAL,
    Acquittal,
    NewRun,
    News,
    ParentLink,
    Release,
    Reopen,
    RunFilter,
    RunRow,
    Snapshot,
    Status,
)
from perdure.store.protocol import Store
from perdure.store.sql import events as sqlite_events
from perdure.store.turn import Committed, Created, DeadItem, Entry, Existing, NextGeneration, Turn
from stores.store_kit import (
    cancel,
    completed_row,
    event,
    failed_row,
    new_run,
    publish,
    published,
    reply,
    resumed_row,
    send,
    spawn,
    started_row,
    step_row,
    stepping,
    turn,
    watch,
    worker,
)

NAMES = [f"{letter}{number}" for letter in "am" for number in range(6)]
TYPES = ["a", "b"]
WORKERS = ["w1", "w2"]
#: A worker that nobody has registered.
GHOST = "w0"
POLICIES = [
    EventPolicy(delivery, consume, expires, undelivered)
    for delivery in ("after_create", "after_wait", "all", "first")
    for consume in (True, False)
    for expires in (None, 40)
    for undelivered in ("dead_letter", "broadcast", "discard")
]
PENDING_MAX = 3


@contextmanager
def parts_of(runs: int) -> Iterator[None]:
    """Publishing serves so many runs at once, so that spreading has something to do."""
    before = memory_events.SPREAD_RUNS_MAX, sqlite_events.SPREAD_RUNS_MAX
    memory_events.SPREAD_RUNS_MAX = sqlite_events.SPREAD_RUNS_MAX = runs  # type: ignore[misc]
    try:
        yield
    finally:
        memory_events.SPREAD_RUNS_MAX, sqlite_events.SPREAD_RUNS_MAX = before  # type: ignore[misc]


class Differs(AssertionError):
    """The stores do not agree."""


def plain(answer: Any) -> Any:
    """What two answers must share: lists and tuples are one, and what is only a hint does not count."""
    match answer:
        case Committed():
            return msgspec.structs.replace(answer, more=False, deliveries=list(answer.deliveries),
                                           effects=list(answer.effects), spawned=dict(answer.spawned))  # fmt: skip
        case Created(committed=Committed() as committed):
            return msgspec.structs.replace(answer, committed=plain(committed))
        case News():
            return answer.cursor, list(answer.items), sorted(answer.ended)
        case msgspec.Struct():
            return type(answer), [plain(getattr(answer, name)) for name in answer.__struct_fields__]
        case tuple() if hasattr(answer, "_fields"):
            return answer
        case list() | tuple():
            return [plain(each) for each in answer]
        case dict():
            return {key: plain(value) for key, value in answer.items() if value != 0}
        case _:
            return answer


class Life:
    """One random but repeatable sequence of calls."""

    def __init__(self, reference: Store, other: Store, seed: int) -> None:
        self._stores = (reference, other)
        self._random = random.Random(seed)
        self._at = 100
        self._cursors = dict.fromkeys(WORKERS, 0)
        self._keys: list[int] = []
        #: Runs that have waited for events: their last turn says that they do no longer.
        self._waited: set[int] = set()
        self._calls: list[Callable[[], Any]] = [
            *[self._create] * 3, *[self._create_many], *[self._commit] * 8, *[self._commit_many] * 3,
            *[self._append] * 3, self._cancel, self._terminate, self._pause, self._unpause, self._resume, self._park,
            self._reopen, self._restore, self._delete, *[self._publish] * 2, self._spread, self._tidy, self._letter,
            *[self._claim] * 4, *[self._release] * 2, *[self._reap] * 2, self._acquit, self._leave, self._news,
            self._list, self._again,
        ]  # fmt: skip
        self._last: tuple[str, tuple[Any, ...]] | None = None

    async def live(self, calls: int) -> None:
        for worker_id in WORKERS:
            await self._both("register_worker", worker(worker_id))
        for number in range(calls):
            self._at += self._random.randrange(3) * 10
            await self._random.choice(self._calls)()
            if number % 3 == 0 or number == calls - 1:
                await self._compare()

    # -- asking both ---------------------------------------------------------------------------------------

    async def _both(self, name: str, *arguments: Any) -> Any:
        answers: list[Any] = []
        for store in self._stores:
            try:
                answers.append(await getattr(store, name)(*arguments))
            except Exception as error:
                answers.append((type(error), str(error)))
        if name == "claim":  # in no order that is promised
            answers = [sorted(rows, key=lambda row: row.key) for rows in answers]
        if plain(answers[0]) != plain(answers[1]):
            raise Differs(f"{name}{arguments}:\n{plain(answers[0])}\n{plain(answers[1])}")
        self._last = (name, arguments)
        return answers[0]

    async def _compare(self) -> None:
        """All that a store shows."""
        for run_id in NAMES:
            row = await self._both("get", run_id)
            if row is not None:
                for generation in range(1, row.generation + 1):
                    await self._both("journal", row.key, generation)
                await self._both("inbox", row.key, 100)
        await self._both("load", self._keys[-20:])
        for name in ("publications", "dead_letters"):
            await self._both(name, None, 100)
            await self._both(name, "a", 100, 3)
        for worker_id in WORKERS:
            await self._both("held", worker_id)
        await self._both("expired_events")
        await self._both("count_runs")
        for number in range(3):
            await self._both("reply", f"request{number}")

    async def _rows(self) -> list[RunRow]:
        return list(await self._stores[0].list_runs(RunFilter(), 100))

    async def _pick(self, *statuses: Status) -> RunRow | None:
        rows = [row for row in await self._rows() if not statuses or row.status in statuses]
        return self._random.choice(rows) if rows else None

    def _one(self, choices: Sequence[Any]) -> Any:
        return self._random.choice(choices)

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    # -- turns ---------------------------------------------------------------------------------------------

    async def _turn(self, row: RunRow, simple: bool = False, worker: str | None = None) -> Turn:
        """A turn for a run: nearly always one that fits."""
        at = self._at
        worker = worker or ("w9" if self._chance(0.03) else row.owner or "w1")
        epoch, generation, seq = row.epoch, row.generation, row.next_seq
        if self._chance(0.12):
            epoch, generation, seq = self._one([
                (epoch - 1, generation, seq), (epoch + 1, generation, seq), (epoch, generation - 1, seq),
                (epoch, generation + 1, seq), (epoch, generation, seq + 1), (epoch, generation, max(2, seq - 1)),
            ])  # fmt: skip
        place: dict[str, Any] = {"epoch": epoch, "generation": generation, "at": at, "worker": worker}
        kind = self._one(["step", "record", "nothing", "end"] if simple else [
            "step", "record", "nothing", "end", "fail", "cancelled", "effects", "effects", "events", "events", "prune",
            "continue"])  # fmt: skip
        value = str(self._random.randrange(1000)).encode()
        ends: dict[str, Any] = {"waits": {}} if row.key in self._waited else {}
        if kind == "step" and generation == 1:
            return stepping(row.key, seq, step_row(seq, value), epoch=epoch, worker=worker)
        record = step_row(seq, value)
        shown = {"custom_status": self._one([None, None, value]), "state": self._one([None, None, value])}
        match kind:
            case "end" | "fail" | "cancelled" if not self._chance(0.3):
                kind = "record"
            case _:
                pass
        match kind:
            case "end":
                notice = self._notice(row)
                return turn(row.key, seq, completed_row(seq), status=Status.COMPLETED, notice=notice, **place, **shown,
                            **ends)  # fmt: skip
            case "fail":
                notice = self._notice(row)
                return turn(row.key, seq, failed_row(seq), status=Status.FAILED, notice=notice, **place, **ends)
            case "cancelled":
                return turn(row.key, seq, completed_row(seq), status=Status.CANCELLED, **place, **ends)
            case "effects":
                effects = [self._effect(seq + number, row) for number in range(self._random.randrange(1, 4))]
                return turn(row.key, seq, *effects, pending_max=PENDING_MAX, **place)
            case "events":
                return await self._about_events(row, seq, place)
            case "prune":
                gone = self._random.sample(range(1, seq), min(2, seq - 1))
                return turn(row.key, seq, record, pruned=gone, **place)
            case "continue":
                following = NextGeneration(workflow=self._one(["order", "other"]), version="2", started=started_row())
                return turn(row.key, seq, record, continued=following, **place, **shown)
            case "nothing":
                return turn(row.key, seq, status=Status.WAITING, wake_at=at + 30, frontier=value, **place)
            case _:
                status = self._one([Status.RUNNING, Status.WAITING, Status.PENDING])
                return turn(row.key, seq, record, status=status, frontier=value, **place, **shown)

    def _notice(self, row: RunRow) -> Any:
        if row.parent is None:
            return None
        return child_item(ChildNotice(row.id, row.parent.generation, row.parent.location, value=msgspec.Raw(b"1")), 50)

    def _effect(self, seq: int, row: RunRow) -> Entry:
        target = self._one([name for name in NAMES if name != row.id])
        match self._random.randrange(6):
            case 0 | 1:
                item = event(self._one(TYPES), at=self._at, dedup=self._one([None, "k1", "k2"]))
                return send(seq, target, item)
            case 2:
                parent = ParentLink(key=row.key, generation=row.generation, location="child")
                return spawn(seq, new_run(target, owner=self._one([None, "w1"]), parent=self._one([parent, None])))
            case 3:
                return publish(seq, self._published())
            case 4:
                return reply(seq, f"request{self._random.randrange(3)}", str(seq).encode())
            case _:
                return watch(seq, target)

    async def _about_events(self, row: RunRow, seq: int, place: dict[str, Any]) -> Turn:
        items = [item for item in await self._stores[0].inbox(row.key, 100) if item.kind == "event"]
        taken = self._random.sample(items, min(len(items), self._random.randrange(3)))
        held = [item.id for item in items if item not in taken and item.publication and item.policy.single]
        changes: dict[str, Any] = {"pending_max": PENDING_MAX, "status": Status.WAITING}
        match self._random.randrange(4):
            case 0:
                changes["returned"] = held[:2]
            case 1:
                changes["dead"] = [DeadItem(item.id, "no good") for item in taken[:1]]
                taken = taken[1:]
            case _:
                pass
        if self._chance(0.7):
            kinds = self._random.sample(TYPES, self._random.randrange(3))
            self._waited.add(row.key)
            changes["waits"] = {kind: self._random.randrange(1, 4) for kind in kinds}
        consumed = [item.id for item in taken]
        other = self._random.randrange(1, 60)  # of another run, or gone, or never there
        if self._chance(0.1) and all(item.id != other for item in items):
            consumed.append(other)
        return turn(row.key, seq, *([step_row(seq)] if consumed else []), consumed=consumed, **changes, **place)

    async def _commit(self) -> None:
        rows = await self._rows()
        chosen = self._random.sample(rows, min(len(rows), self._one([1, 1, 1, 3])))
        await self._both("commit", [await self._turn(row) for row in chosen])

    async def _commit_many(self) -> None:
        """Enough, and plain enough, for a store to take a fast path."""
        worker = self._one(["w1", "w2"])
        rows = [row for row in await self._rows() if row.owner in (None, worker) or self._chance(0.1)]
        turns = [await self._turn(row, simple=True, worker=worker) for row in rows]
        if self._chance(0.7):
            turns = [one for row, one in zip(rows, turns, strict=True) if row.status not in TERMINAL]
        first = turn(0, 2, worker=worker)
        padding = [(new_run(f"p{self._random.randrange(10**9)}", owner=worker), first) for _ in range(16)]
        made = await self._both("create_all", padding)
        others = [turn(one.key, 2, step_row(2), worker=worker) for one in made]
        turns = [*turns, *others]
        self._random.shuffle(turns)
        await self._both("commit", turns)
        for one in made:
            await self._both("journal", one.key, 1)
        ends = [turn(one.key, 3, completed_row(3), status=Status.COMPLETED, worker=worker) for one in made]
        await self._both("commit", ends)
        await self._both("delete", [one.key for one in made])

    # -- clients -------------------------------------------------------------------------------------------

    def _new(self) -> NewRun:
        run_id = self._one(NAMES)
        return new_run(run_id, owner=self._one([None, "w1", "w2"]), at=self._at, workflow=self._one(["order", "other"]))

    async def _created(self, made: Any) -> None:
        if isinstance(made, Created):
            self._keys.append(made.key)

    async def _create(self) -> None:
        new = self._new()
        first = None
        if new.owner is not None and self._chance(0.6):
            by: dict[str, Any] = {"at": self._at, "worker": new.owner}
            opening = turn(0, 2, frontier=b"1", status=self._one([Status.RUNNING, Status.WAITING]), **by)
            waits = msgspec.structs.replace(opening, waits={"a": 1}, status=Status.WAITING)
            ended = turn(0, 2, completed_row(2), status=Status.COMPLETED, **by)
            first = self._one([opening, waits, ended, turn(0, 2, step_row(2), **by)])
        made = await self._both("create", new, first)
        if isinstance(made, Created) and first is not None and first.waits:
            self._waited.add(made.key)
        await self._created(made)

    async def _create_many(self) -> None:
        batch = [(self._new(), None) for _ in range(4)]
        for made in await self._both("create_all", batch):
            await self._created(made)

    async def _append(self) -> None:
        item = published(self._one(TYPES), self._one(POLICIES), self._at, dedup=self._one([None, None, "k1", "k2"]))
        await self._both("append", self._one(NAMES), item, PENDING_MAX)

    async def _cancel(self) -> None:
        await self._both("request_cancel", self._one(NAMES), cancel(at=self._at))

    async def _terminate(self) -> None:
        if self._chance(0.5):
            await self._both("terminate", self._one(NAMES), "enough", self._at)

    # -- people --------------------------------------------------------------------------------------------

    async def _pause(self) -> None:
        await self._both("pause", self._one(NAMES), "by ann", self._at)

    async def _unpause(self) -> None:
        row = await self._pick(Status.PAUSED)
        await self._both("unpause", row.id if row is not None and self._chance(0.8) else self._one(NAMES), self._at)

    async def _resume(self) -> None:
        row = await self._pick(Status.PARKED)
        await self._both("resume", row.id if row is not None and self._chance(0.8) else self._one(NAMES), self._at)

    async def _park(self) -> None:
        row = await self._pick()
        if row is not None:
            epoch = row.epoch + self._one([0, 0, 0, -1, 1])
            await self._both("park", row.key, epoch, self._one(["why", "broken"]), self._at)

    async def _reopen(self) -> None:
        row = await self._pick(Status.FAILED) if self._chance(0.9) else await self._pick()
        if row is None:
            return
        parent_seq = None
        if row.parent is not None and self._chance(0.5):
            parents = [one.next_seq for one in await self._rows() if one.key == row.parent.key]
            parent_seq = parents[0] + self._one([0, 0, 1]) if parents else None
        epoch, seq = self._one([(row.epoch, row.next_seq)] * 4 + [(row.epoch - 1, row.next_seq),
                                (row.epoch + 1, row.next_seq), (row.epoch, row.next_seq + 1)])  # fmt: skip
        record = resumed_row(seq, seq - 1)
        await self._both(
            "reopen", Reopen(key=row.key, epoch=epoch, record=record, frontier=b"f", parent_seq=parent_seq)
        )

    async def _restore(self) -> None:
        row = await self._pick()
        if row is None or row.parent is not None:
            return
        journals = {row.generation: await self._stores[0].journal(row.key, row.generation)}
        copy = msgspec.structs.replace(row, id=self._one(NAMES))
        made = await self._both("restore", Snapshot(run=copy, journals=journals, inbox=[event(self._one(TYPES))]))
        await self._created(made)

    async def _delete(self) -> None:
        rows = [row.key for row in await self._rows()]
        await self._both("delete", sorted(self._random.sample(rows, min(len(rows), 3))))

    # -- events --------------------------------------------------------------------------------------------

    def _published(self) -> Any:
        key = self._one([None, None, str(self._random.randrange(5))])
        return published(self._one(TYPES), self._one(POLICIES), self._at, dedup=key)

    async def _publish(self) -> None:
        await self._both("publish", self._published(), PENDING_MAX)

    async def _spread(self) -> None:
        await self._both("spread", self._at, self._random.randrange(1, 3), PENDING_MAX)

    async def _tidy(self) -> None:
        await self._both("tidy_events", self._at, self._at - self._one([30, 1000]), 1000)

    async def _letter(self) -> None:
        letters = await self._stores[0].dead_letters(None, 100)
        if letters:
            letter = self._one(letters)
            if self._chance(0.3):
                await self._both("remove_dead_letters", [letter.id])
            else:
                await self._both("replay_dead_letter", letter.id, self._one([None, *NAMES]), self._at, PENDING_MAX)

    # -- workers -------------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        unknown = self._one([(), (), [("other", "1")]])
        most = self._one([1, 3, 20]), self._one([0, 1, 3])
        await self._both("claim", self._one([*WORKERS, GHOST]), self._at, *most, unknown, self._one([0, 1]))

    async def _reap(self) -> None:
        """A worker that is not registered counts as dead."""
        await self._both("reap", "w9", self._at)

    async def _acquit(self) -> None:
        rows = [row for row in await self._rows() if row.owner is not None]
        if rows:
            row = self._one(rows)
            epoch = row.epoch + self._one([0, 0, 0, -1, 1])
            await self._both("acquit", self._one(WORKERS), [Acquittal(row.key, epoch, self._one([0, 1]))])

    async def _release(self) -> None:
        worker_id = self._one(WORKERS)
        rows = [row for row in await self._rows() if row.owner is not None]
        given = [
            Release(
                key=row.key,
                epoch=row.epoch + self._one([0, 0, 0, 0, -1, 1]),
                seen_item=self._one([row.last_item, row.last_item, 0]),
                ready_at=self._one([self._at, self._at + 20, NEVER]),
                reason=self._one([None, "nobody knows it"]),
            )
            for row in self._random.sample(rows, min(len(rows), 4))
        ]
        await self._both("release", worker_id, given)

    async def _leave(self) -> None:
        if self._chance(0.4):
            worker_id = self._one(WORKERS)
            await self._both("unregister_worker", worker_id, self._at)
            await self._both("register_worker", worker(worker_id))

    async def _news(self) -> None:
        for worker_id in WORKERS:
            found = await self._both("news", worker_id, self._cursors[worker_id])
            self._cursors[worker_id] = found.cursor

    # -- reading -------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        rows = await self._rows()
        parent = self._one([None, None, *[row.parent.key for row in rows if row.parent is not None]])
        where = RunFilter(
            statuses=frozenset(self._random.sample(list(Status), self._one([0, 0, 1, 3]))),
            workflow=self._one([None, None, "order"]),
            id_prefix=self._one([None, None, "a", "m"]),
            parent_key=parent,
            finished_before=self._one([None, None, self._at - 50]),
        )
        before = self._one([None, *[row.key for row in rows]])
        await self._both("list_runs", where, self._one([2, 50]), before)

    async def _again(self) -> None:
        """The call before once more, as after a lost answer."""
        if self._last is not None and self._last[0] in ("commit", "create", "append", "park", "publish", "reopen"):
            await self._both(*([self._last[0], *self._last[1]]))


__all__ = ["Existing", "Life"]
