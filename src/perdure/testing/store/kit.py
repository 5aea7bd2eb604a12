"""What the checks share: making runs, turns and records, and a world to run them in.

A `World` is one store's universe: `connect()` opens another store on the same data, as another process would,
and `die(worker_id)` makes a worker look dead to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from perdure.kernel import journal
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.kernel.journal import Fault, Record, Row, to_row
from perdure.kernel.operations.child import ChildStarted
from perdure.kernel.operations.publish import Published
from perdure.kernel.operations.reply import Replied
from perdure.kernel.operations.send import Sent
from perdure.kernel.operations.step import StepDone
from perdure.kernel.operations.watch import RunWatched
from perdure.store.items import cancel_item
from perdure.store.model import (
    InboxItem,
    ItemKind,
    NewItem,
    NewRun,
    ParentLink,
    RunKey,
    RunRow,
    Standing,
    Status,
    WorkerInfo,
)
from perdure.store.protocol import Store
from perdure.store.turn import (
    CommitResult,
    Committed,
    Created,
    Entry,
    Publish,
    Reply,
    Send,
    Spawn,
    Turn,
    Watch,
)

T = TypeVar("T")

#: Makes a store, not yet opened, on the data in a directory. Called again with the same directory it stands for another
#: process on the same data.
Factory: TypeAlias = Callable[[Path], Store]
#: Makes a worker of a store look dead to the others.
Die: TypeAlias = Callable[[Store, str], Awaitable[None]]

#: A check that hangs fails.
_PATIENCE_SECONDS = 60.0


class World:
    """One set of data and the stores that look at it."""

    def __init__(self, factory: Factory, directory: Path, die: Die | None = None) -> None:
        self.directory = directory
        self._factory = factory
        self._die = die
        self._opened: list[Store] = []

    def fresh(self) -> World:
        """Another, empty one of the same kind."""
        directory = self.directory / f"fresh-{len(list(self.directory.glob('fresh-*')))}"
        directory.mkdir()
        return World(self._factory, directory, self._die)

    def store(self) -> Store:
        """A store on the data that is not opened yet."""
        return self._factory(self.directory)

    async def connect(self) -> Store:
        store = self.store()
        await store.open()
        self._opened.append(store)
        return store

    async def die(self, store: Store, worker_id: str) -> None:
        """End a worker without a word."""
        if self._die is not None:
            await self._die(store, worker_id)
        elif (kill := getattr(store, "kill_worker", None)) is not None:
            kill(worker_id)
        else:
            await store.close()  # frees what the process's end would free, such as its lock

    async def close(self) -> None:
        for store in self._opened:
            await store.close()

    def run(self, check: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            try:
                return await asyncio.wait_for(check(await self.connect()), _PATIENCE_SECONDS)
            finally:
                await self.close()

        return asyncio.run(main())


# -- records ---------------------------------------------------------------------------------------------


def started_row(workflow: str = "order", at: int = 1) -> Row:
    return to_row(Record(1, at, "", journal.Started(workflow, "1", Raw(b"[]"), seed=7)))


def step_row(seq: int, value: bytes = b"1", location: str = "charge") -> Row:
    return to_row(Record(seq, 100 + seq, location, StepDone(Raw(value))))


def completed_row(seq: int) -> Row:
    return to_row(Record(seq, 100 + seq, "", journal.Completed(Raw(b"null"))))


def sent_row(seq: int, target: str, refused: str = "") -> Row:
    return to_row(Record(seq, 100 + seq, "send", Sent(target, "ping", refused=refused)))


def child_row(seq: int, child_id: str, refused: str = "") -> Row:
    return to_row(Record(seq, 100 + seq, "child", ChildStarted(child_id, "order", "1", refused=refused)))


def failed_row(seq: int) -> Row:
    return to_row(Record(seq, 100 + seq, "", journal.Failed(Fault("builtins:ValueError", "no"))))


def resumed_row(seq: int, *taken_back: int) -> Row:
    return to_row(Record(seq, 500, "", journal.Resumed(taken_back=taken_back)))


# -- what goes in ----------------------------------------------------------------------------------------


def new_run(
    run_id: str,
    owner: str | None = "w1",
    at: int = 1,
    parent: ParentLink | None = None,
    digest: bytes = b"digest",
    workflow: str = "order",
) -> NewRun:
    return NewRun(
        id=run_id,
        workflow=workflow,
        version="1",
        input_digest=digest,
        started=started_row(workflow, at),
        created_at=at,
        parent=parent,
        owner=owner,
    )


def turn(key: RunKey, seq: int, *entries: Entry | Row, **changes: Any) -> Turn:
    """A turn of the first generation, by the first owner, unless told otherwise."""
    plain = [entry if isinstance(entry, Entry) else Entry(entry) for entry in entries]
    fields: dict[str, Any] = {
        "key": key,
        "epoch": 1,
        "generation": 1,
        "expected_seq": seq,
        "entries": plain,
        "status": Status.RUNNING,
        "wake_at": None,
        "at": 100 + seq,
        "worker": "w1",
    }
    return Turn(**(fields | changes))


def stepping(key: RunKey, seq: int, row: Row | None = None, **changes: Any) -> Turn:
    """The turn of a run that goes from one step to the next."""
    return turn(key, seq, row or step_row(seq), **({"frontier": b'{"seq":2}'} | changes))


def finishing(key: RunKey, seq: int, **changes: Any) -> Turn:
    return turn(key, seq, completed_row(seq), **({"status": Status.COMPLETED} | changes))


def event(kind: str = "ping", data: bytes = b"{}", at: int = 50, dedup: str | None = None) -> NewItem:
    return NewItem(kind=ItemKind.EVENT, type=kind, data=data, sent_at=at, dedup=dedup)


def cancel(reason: str = "enough", at: int = 50) -> NewItem:
    return cancel_item(reason, at)


def send(seq: int, target: str, item: NewItem | None = None) -> Entry:
    refused = {reason: sent_row(seq, target, reason) for reason in ("not_found", "finished", "full")}
    return Entry(sent_row(seq, target), Send(target=target, item=item or event(), refused=refused))


def spawn(seq: int, new: NewRun) -> Entry:
    return Entry(child_row(seq, new.id), Spawn(new=new, refused={"conflict": child_row(seq, new.id, "conflict")}))


#: Of events that every run which may have them reads, rather than one.
SHARED = EventPolicy(consume=False)


def published(kind: str = "ping", policy: EventPolicy = DEFAULT_POLICY, at: int = 50, **more: Any) -> NewItem:
    if (expires := more.pop("expires", None)) is not None:
        policy = msgspec.structs.replace(policy, expires=expires)
    return NewItem(kind=ItemKind.EVENT, type=kind, data=b"{}", sent_at=at, policy=policy, **more)


def publish(seq: int, item: NewItem) -> Entry:
    return Entry(to_row(Record(seq, 100 + seq, "publish", Published(item.type, Raw(item.data)))), Publish(item=item))


def reply(seq: int, request: str, data: bytes = b"1") -> Entry:
    row = to_row(Record(seq, 100 + seq, "reply", Replied(request, Raw(data))))
    return Entry(row, Reply(request=request, data=data, at=100 + seq))


def watch(seq: int, target: str) -> Entry:
    def row(refused: str) -> Row:
        return to_row(Record(seq, 100 + seq, "watch", RunWatched(target, refused)))

    return Entry(row(""), Watch(target=target, location="watch", refused={"not_found": row("not_found")}))


def worker(worker_id: str, at: int = 1) -> WorkerInfo:
    return WorkerInfo(id=worker_id, name="test", host="here", pid=1, started_at=at)


def without_leases(standings: Mapping[str, Standing]) -> dict[str, Standing]:
    """What stores have alike: times of leases are another each time, and not every store has them."""
    return {name: msgspec.structs.replace(one, lease=None) for name, one in standings.items()}


# -- short ways ------------------------------------------------------------------------------------------


async def create(store: Store, run_id: str, **changes: Any) -> RunKey:
    created = await store.create(new_run(run_id, **changes), None)
    assert isinstance(created, Created)
    return created.key


async def commit(store: Store, one: Turn) -> CommitResult:
    (result,) = await store.commit([one])
    return result


async def accept(store: Store, one: Turn) -> Committed:
    result = await commit(store, one)
    assert isinstance(result, Committed), result
    return result


async def row_of(store: Store, run_id: str) -> RunRow:
    row = await store.get(run_id)
    assert row is not None
    return row


async def everything(store: Store, run_id: str) -> tuple[RunRow, list[Sequence[Row]], Sequence[InboxItem]]:
    """All that a store shows of a run, to compare before and after."""
    row = await row_of(store, run_id)
    generations = [await store.journal(row.key, number) for number in range(1, row.generation + 1)]
    return row, generations, await store.inbox(row.key, 1_000)


async def outcome(call: Awaitable[T]) -> T | Exception:
    try:
        return await call
    except Exception as error:
        return error
