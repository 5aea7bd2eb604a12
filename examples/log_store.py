"""A store of your own in about 300 lines: a file of calls, and the reference store in memory as what they come to.

Every call that changes something is appended to a log as one line and synced before it is answered. A process that
opens the file repeats the calls in order and so has the same state: the store protocol is
deterministic, because times and ids come from the caller. Good for learning and for small things; it never forgets
anything, so it is not good for much.

`tests/stores/test_example_store.py` runs the store suite on it. Run a workflow on it: `python examples/log_store.py`.
"""

import asyncio
import contextlib
import fcntl
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from perdure import Engine, step, workflow
from perdure.kernel.journal import Row
from perdure.store.memory import MemoryStore
from perdure.store.model import (
    DEFAULT_TERMS,
    Acquittal,
    LeaseTerms,
    NewItem,
    NewRun,
    Release,
    Reopen,
    Snapshot,
    WorkerInfo,
)
from perdure.store.move import Packed, Remainder
from perdure.store.turn import CommitResult, Creation, Entry, Publish, Reply, Send, Spawn, Turn, Watch

POLL_SECONDS = 0.02


class LogStore:
    """Everything that is not written here is answered by the state in memory, after catching up with the log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._state = MemoryStore()
        self._read = 0
        self._file: Any = None
        self._locks: dict[str, Any] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<LogStore in {self._directory}>"

    async def open(self) -> None:
        if self._file is None:
            self._file = (self._directory / "log.jsonl").open("a+b", buffering=0)
            self._look()

    async def close(self) -> None:
        """Locks are freed, as the end of the process would free them: that is how others see that a worker died."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._timer is not None:
            self._timer.cancel()
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    # -- the log ---------------------------------------------------------------------------------------------------

    async def _change(self, name: str, *args: Any) -> Any:
        """Repeat what others did, do it, write it down. One writer at a time; durable when this returns."""
        with self._alone():
            line = msgspec.json.encode([name, *args]) + b"\n"
            answer, error = await self._perform(line)
            if error is None:
                self._file.write(line)
                os.fsync(self._file.fileno())
                self._read += len(line)
        if error is not None:
            raise error  # refusals change nothing, so they are not in the log
        return answer

    async def _perform(self, line: bytes) -> tuple[Any, Exception | None]:
        name, *args = msgspec.json.decode(line)
        try:
            answer = getattr(self._state, name)(*DECODE[name](*args))
            return (await answer if inspect.isawaitable(answer) else answer), None
        except Exception as error:
            return None, error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._catch_up()
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        tail = os.pread(self._file.fileno(), os.fstat(self._file.fileno()).st_size - self._read, self._read)
        for line in tail.splitlines(keepends=True):
            if not line.endswith(b"\n"):  # the writer died in the middle of it: nobody heard an answer
                os.truncate(self._file.fileno(), self._read)
                break
            with contextlib.suppress(StopIteration):
                self._perform(line).send(None)  # the state in memory never waits
            self._read += len(line)

    def _look(self) -> None:
        """Notice what other processes wrote, and tell those who watch (the state in memory calls them)."""
        with self._alone():
            pass
        self._timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._look)

    # -- changes ---------------------------------------------------------------------------------------------------

    async def create(self, new: NewRun, turn: Turn | None) -> Any:
        return await self._change("create", new, turn)

    async def create_all(self, creations: Sequence[Creation]) -> Any:
        return await self._change("create_all", creations)

    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Any:
        return await self._change("append", run_id, item, pending_max)

    async def request_cancel(self, run_id: str, item: NewItem) -> Any:
        return await self._change("request_cancel", run_id, item)

    async def publish(self, item: NewItem, pending_max: int) -> Any:
        return await self._change("publish", item, pending_max)

    async def restore(self, snapshot: Snapshot) -> Any:
        return await self._change("restore", snapshot)

    async def receive(self, source: str, runs: Sequence[Packed]) -> Any:
        return await self._change("receive", source, runs)

    async def arrive(self, source: str, remainder: Remainder, at: int) -> bool:
        return bool(await self._change("arrive", source, remainder, at))

    async def identity(self) -> str:
        return f"log-{os.fstat(self._file.fileno()).st_ino}"

    async def reopen(self, reopen: Reopen) -> bool:
        return bool(await self._change("reopen", reopen))

    async def register_worker(self, worker: WorkerInfo, terms: LeaseTerms = DEFAULT_TERMS) -> None:
        if worker.id not in self._locks:
            self._locks[worker.id] = _locked(self._lock_of(worker.id))
        await self._change("register_worker", worker)

    async def unregister_worker(self, worker_id: str, at: int) -> None:
        await self._change("unregister_worker", worker_id, at)
        if (lock := self._locks.pop(worker_id, None)) is not None:
            lock.close()

    async def reap(self, worker_id: str, at: int) -> int:
        for dead in await self.dead_workers() - {worker_id}:
            await self._change("kill_worker", dead)
        return int(await self._change("reap", worker_id, at))

    async def dead_workers(self) -> frozenset[str]:
        """A worker whose lock is free is dead."""
        with self._alone():
            others = [worker.id for worker in await self._state.workers() if worker.id not in self._locks]
        dead = {other: lock for other in others if (lock := _locked(self._lock_of(other))) is not None}
        for lock in dead.values():
            lock.close()
        return frozenset(dead)

    async def claim(
        self,
        worker_id: str,
        at: int,
        limit: int,
        suspects_max: int = 1,
        unknown: Sequence[tuple[str, str]] = (),
        trusted: int = 0,
        again: bool = False,
    ) -> Any:
        return await self._change("claim", worker_id, at, limit, suspects_max, unknown, trusted)

    async def acquit(self, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
        await self._change("acquit", worker_id, acquittals)

    async def commit(self, turns: Sequence[Turn]) -> Sequence[CommitResult]:
        return await self._change("commit", turns)  # type: ignore[no-any-return]

    async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
        await self._change("release", worker_id, releases)

    # -- the rest: changes whose arguments are plain values, and reads ----------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in PLAIN:
            return partial(self._change, name)
        if name not in READS:
            raise AttributeError(name)
        target = getattr(self._state, name)

        async def read(*args: Any, **kwargs: Any) -> Any:
            with self._alone():
                return await target(*args, **kwargs)

        return read

    def trusted_until(self, worker_id: str) -> float | None:
        return None  # a lock lives as long as its process

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._state.watch(callback)

    def _lock_of(self, worker_id: str) -> Path:
        return self._directory / f"worker-{worker_id}.lock"


READS = {
    "renew", "held", "load", "news", "get", "list_runs", "count_runs", "journal", "inbox", "workers", "reply",
    "standings", "publications", "dead_letters", "expired_events", "departure", "pack", "remainder", "received",
    "has_arrived",
}  # fmt: skip
PLAIN = {
    "terminate", "resume", "pause", "unpause", "delete", "spread", "replay_dead_letter", "remove_dead_letters",
    "tidy_events", "park", "depart", "stay", "leave", "confirm", "withdraw", "drain_worker",
}  # fmt: skip


def _locked(path: Path) -> Any:
    """The file, locked for as long as it is open; None if somebody else has it."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


# -- from JSON back to the structs of the protocol -----------------------------------------------------------------


FIELDS = {name: kind for name, kind in get_type_hints(Turn).items() if name != "entries"}


def _turn(raw: dict[str, Any] | None) -> Turn | None:
    if raw is None:
        return None
    entries = [Entry(msgspec.convert(row, Row), _effect(effect)) for row, effect in raw["entries"]]
    return Turn(entries=entries, **{name: msgspec.convert(raw[name], kind) for name, kind in FIELDS.items()})


def _effect(raw: dict[str, Any] | None) -> Send | Spawn | Publish | Reply | Watch | None:
    """Which of them it is shows in its fields."""
    if raw is None:
        return None
    kinds: list[Any] = [Send, Spawn, Publish, Reply, Watch]
    kind = next(kind for kind in kinds if set(kind.__struct_fields__) == raw.keys())
    return msgspec.convert(raw, kind)  # type: ignore[no-any-return]


def _plain(*args: Any) -> tuple[Any, ...]:
    return args


DECODE: dict[str, Callable[..., tuple[Any, ...]]] = {
    "create": lambda new, turn: (msgspec.convert(new, NewRun), _turn(turn)),
    "create_all": lambda creations: ([(msgspec.convert(new, NewRun), _turn(turn)) for new, turn in creations],),
    "append": lambda run_id, item, most: (run_id, msgspec.convert(item, NewItem), most),
    "request_cancel": lambda run_id, item: (run_id, msgspec.convert(item, NewItem)),
    "register_worker": lambda worker: (msgspec.convert(worker, WorkerInfo),),
    "claim": lambda worker, at, limit, suspects, unknown, trusted: (
        worker,
        at,
        limit,
        suspects,
        [tuple(one) for one in unknown],
        trusted,
    ),
    "acquit": lambda worker, acquittals: (worker, [msgspec.convert(one, Acquittal) for one in acquittals]),
    "commit": lambda turns: ([_turn(turn) for turn in turns],),
    "release": lambda worker, releases: (worker, [msgspec.convert(one, Release) for one in releases]),
    "publish": lambda item, most: (msgspec.convert(item, NewItem), most),
    "restore": lambda snapshot: (msgspec.convert(snapshot, Snapshot, strict=False),),
    "reopen": lambda reopen: (msgspec.convert(reopen, Reopen),),
    "receive": lambda source, runs: (source, [msgspec.convert(one, Packed, strict=False) for one in runs]),
    "arrive": lambda source, remainder, at: (source, msgspec.convert(remainder, Remainder), at),
    **dict.fromkeys((*PLAIN, "unregister_worker", "reap", "kill_worker"), _plain),
}


# -- a workflow on it ------------------------------------------------------------------------------------------------


@step
async def stamp(page: int) -> str:
    print(f"stamping page {page}")
    return f"page {page} stamped"


@workflow
async def stamp_all(pages: int) -> list[str]:
    return [await stamp(page) for page in range(1, pages + 1)]


async def main(directory: Path) -> None:
    store: Any = LogStore(directory)
    async with Engine(store) as engine:
        print(await (await engine.start(stamp_all(2), id="stamps")).result())
    again: Any = LogStore(directory)
    async with Engine(again) as engine:  # another life: nothing is stamped twice
        print(await (await engine.start(stamp_all(2), id="stamps")).result())
    lines = (directory / "log.jsonl").read_text().count("\n")
    print(f"the log has {lines} lines")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
