"""Moving everything from one store to another, while both are used: `perdure migrate`.

    1  copy       ended runs, in passes, while the old store works on as ever
    2  hand over  the old store takes nothing more and all its open runs are fenced (`depart`); they are copied, which
                  is short: most runs of a store have ended; checksums are compared; it is decided (`leave`);
                  the new store lets them go on (`arrive`), with their events, parents, children and waits

All open runs go at once, so that a parent and its child, an event and those who wait for it are never in two stores
(decision 0157). Every step is a call of a store that may be repeated, and the mover remembers nothing: what is to be
done is read from both stores, each time. Nothing is deleted in the old store.

    the mover dies                    durable                            what the next one does
    ──────────────                    ───────                            ──────────────────────
    while it copies                   runs, not yet confirmed            copies those again
    after `depart`                    nobody has the open runs           goes on; or `undo`, and the old store works on
    before `leave`, all is copied     the same                           compares, goes on
    after `leave`                     it is decided                      `arrive`; there is no way back
    after `arrive`, before it says so everything                         says so
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, ParamSpec, TypeVar

import msgspec

from perdure import limits
from perdure.errors import MoveRefused, StoreUnavailable
from perdure.store.model import TERMINAL, RunFilter, RunKey, RunRow, Status
from perdure.store.move import Departure, Packed, Remainder, checksum, journal_goes_on, mark_of
from perdure.store.protocol import Store

P = ParamSpec("P")
T = TypeVar("T")

OPEN: Final = frozenset(Status) - TERMINAL


class Progress(msgspec.Struct, frozen=True):
    """How far the mover is. `phase`: copying, handing-over, arriving, done; of `verify`: verifying."""

    phase: str
    done: int
    total: int


class Moved(msgspec.Struct, frozen=True):
    """What a call of the mover did, or found done."""

    #: Runs that are in the new store, and how many of them were open when they went.
    runs: int = 0
    open: int = 0
    #: Runs that this very call copied; others were there from a call before.
    copied: int = 0
    events: int = 0
    dead_letters: int = 0
    #: How long the open runs stood still, in seconds; None: they were not handed over by this call.
    pause: float | None = None
    handed_over: bool = False


class Verified(msgspec.Struct, frozen=True):
    """What was compared after a move."""

    same: int = 0
    #: Runs that have gone on since: what they brought is there.
    went_on: int = 0
    #: Ended runs that were removed from the new store since.
    removed: int = 0
    #: Those that differ.
    different: tuple[str, ...] = ()


class Mover:
    """From `old` to `new`. `target`: what people may see of the new store's URL. `tell` hears how far it is."""

    def __init__(
        self,
        old: Store,
        new: Store,
        target: str,
        *,
        now: Callable[[], int],
        tell: Callable[[Progress], None] = lambda progress: None,
        retry_seconds: float = limits.MOVE_RETRY_SECONDS,
    ) -> None:
        self._old = old
        self._new = new
        self._target = target
        self._now = now
        self._tell = tell
        self._retry_seconds = retry_seconds
        self._source = ""
        self._copied = 0

    # -- what people ask for -------------------------------------------------------------------------------------

    async def count(self) -> dict[Status, int]:
        """What there is to move, by status. Writes nothing. Raises `MoveRefused` as `move` would."""
        await self._check()
        await self._refuse_clashes()
        return dict(await self._try(self._old.count_runs))

    async def move(self, *, hand_over: bool = True) -> Moved:
        """Copy, and hand over unless told otherwise. Goes on where another call was interrupted. Raises `MoveRefused`,
        and what the stores raise; then either nothing has departed, or a repeat goes on."""
        departure = await self._check()
        if departure is None:
            await self._refuse_clashes()
            await self._copy_while_it_works()
            if not hand_over:
                return Moved(runs=len(await self._received()), copied=self._copied)
        return await self._hand_over()

    async def undo(self) -> bool:
        """Take back what was begun: the old store works on, and the copies are removed. False: nothing was begun.

        Raises `MoveRefused` if it is too late."""
        departure = await self._check()
        if departure is not None and departure.gone:
            raise MoveRefused(
                f"everything has gone to {departure.target} already, and may have gone on there. To have it back, move "
                "from there to a new store."
            )
        stayed = await self._try(self._old.stay, self._now())
        if await self._try(self._old.departure) is not None:  # somebody else has gone on with it meanwhile
            return await self.undo()
        withdrawn = await self._withdraw_all()
        return stayed or departure is not None or withdrawn > 0

    async def verify(self) -> Verified:
        """Compare every run of the old store with the one in the new store. Writes nothing. Raises `MoveRefused` if it
        was not moved yet."""
        departure = await self._check()
        if departure is None or not departure.gone or not await self._try(self._new.has_arrived, self._source):
            raise MoveRefused("there is nothing to compare yet: the move is not complete. Run it first, or to its end.")
        same, went_on, removed, different, seen = 0, 0, 0, list[str](), 0
        total = sum((await self._try(self._old.count_runs)).values())
        async for rows in self._listed(frozenset()):
            for before, now in await self._pairs(rows):
                seen += 1
                if now is None:
                    removed += before.run.status.terminal
                    different += [] if before.run.status.terminal else [before.run.id]
                elif checksum(before, settled=True) == checksum(now, settled=True):
                    same += 1
                elif journal_goes_on(before, now):
                    went_on += 1
                else:
                    different.append(before.run.id)
            self._tell(Progress("verifying", seen, total))
        return Verified(same, went_on, removed, tuple(different))

    # -- whether it can be ---------------------------------------------------------------------------------------

    async def _check(self) -> Departure | None:
        """Where the old store is going already. Raises `MoveRefused`."""
        self._source = await self._try(self._old.identity)
        target_id = await self._try(self._new.identity)
        if self._source == target_id:
            raise MoveRefused(
                "both are the same store, or one is a copy of the other. Name another target: a new file, another "
                "database, or another schema (?schema=...)."
            )
        leaving = await self._try(self._new.departure)
        if leaving is not None:
            raise MoveRefused(
                f"the target itself is moved to {leaving.target}, and takes nothing more. Move to that store, or to a "
                "new one."
            )
        departure = await self._try(self._old.departure)
        if departure is not None and departure.target_id != target_id:
            way_out = "Run" if departure.gone else "Go on with that, or take it back with --undo; run"
            raise MoveRefused(
                f"this store is moved to {departure.target}, which is not {self._target}. {way_out} `perdure migrate` "
                "with that target."
            )
        return departure

    async def _refuse_clashes(self) -> None:
        """Before anything is copied: an id of an open run that another run of the target has."""
        here = await self._received()
        async for rows in self._listed(OPEN):
            for row in rows:
                if row.id not in here and (other := await self._try(self._new.get, row.id)) is not None:
                    raise _clash([other.id])

    # -- copying -------------------------------------------------------------------------------------------------

    async def _copy_while_it_works(self) -> None:
        """In passes, until one finds little: what is left is copied while everything stands still."""
        for _ in range(limits.MOVE_PASSES_MAX):
            if await self._copy_ended("copying") <= limits.MOVE_PAGE_RUNS:
                return

    async def _copy_ended(self, phase: str) -> int:
        """Copy the ended runs that are not here yet, or have changed since. Returns how many."""
        marks = await self._received()
        total = sum(count for status, count in (await self._try(self._old.count_runs)).items() if status.terminal)
        done = copied = 0
        async for rows in self._listed(TERMINAL):
            missing = [row for row in rows if marks.get(row.id) != mark_of(row)]
            for part in _parts(missing):
                copied += await self._copy(part, TERMINAL)
                self._tell(Progress(phase, min(done + copied, total), total))
            done += len(rows) - len(missing)
        self._tell(Progress(phase, total, total))
        return copied

    async def _copy(self, rows: Sequence[RunRow], statuses: frozenset[Status]) -> int:
        """Copy runs, read them back, and confirm them if the checksums are equal. Runs that have another status by now
        than those given are left for another time."""
        packed = await self._try(self._old.pack, [row.key for row in rows])
        packed = [one for one in packed if one.run.status in statuses]
        receipt = await self._try(self._new.receive, self._source, packed)
        if receipt.taken:
            raise _clash(receipt.taken)
        back = {one.run.id: one for one in await self._try(self._new.pack, list(receipt.keys.values()))}
        for one in packed:
            copy = back.get(one.run.id)
            if copy is None or checksum(copy) != checksum(one):
                await self._try(self._new.withdraw, self._source, [one.run.id])  # so that it is copied again
                raise MoveRefused(
                    f"run {one.run.id!r} is not the same in the target as in this store: somebody changes the target, "
                    "or it is damaged. Nothing was decided; run the command again."
                )
        marks = {one.run.id: mark_of(one.run) for one in packed}
        await self._try(self._new.confirm, self._source, marks)
        self._copied += len(packed)
        return len(packed)

    # -- handing over --------------------------------------------------------------------------------------------

    async def _hand_over(self) -> Moved:
        began = self._now()
        target_id = await self._try(self._new.identity)
        departure = await self._try(self._old.depart, self._target, target_id, self._now())
        counts = await self._try(self._old.count_runs)
        if await self._try(self._new.has_arrived, self._source):
            return self._report(counts, None)
        try:
            await self._copy_rest()
        except MoveRefused:
            # What is in the way is in the target, and needs a person: until then the old store works on.
            if not departure.gone and await self._try(self._old.stay, self._now()):
                await self._withdraw_open()
            raise
        if not departure.gone and not await self._try(self._old.leave, departure.at):
            raise MoveRefused("somebody took the move back (--undo) while it went on. Run it again if that was wrong.")
        total = sum(counts.values())
        self._tell(Progress("arriving", total, total))
        remainder = await self._try(self._old.remainder)
        await self._try(self._new.arrive, self._source, remainder, self._now())
        self._tell(Progress("done", total, total))
        return self._report(counts, remainder, (self._now() - began) / 1_000_000)

    def _report(self, counts: Mapping[Status, int], remainder: Remainder | None, pause: float | None = None) -> Moved:
        return Moved(
            runs=sum(counts.values()),
            open=sum(count for status, count in counts.items() if not status.terminal),
            copied=self._copied,
            events=0 if remainder is None else len(remainder.publications),
            dead_letters=0 if remainder is None else len(remainder.dead_letters),
            pause=pause,
            handed_over=True,
        )

    async def _copy_rest(self) -> None:
        """Nothing changes in the old store any more: bring the copies to where it is."""
        await self._copy_ended("copying")
        await self._copy_open()
        here = await self._received()
        missing = 0
        async for rows in self._listed(frozenset()):
            for row in rows:
                missing += here.pop(row.id, None) != mark_of(row)
        if missing:
            raise MoveRefused(f"{missing} runs are missing in the target: somebody removed them. Run it again.")
        gone = list(here)  # they were deleted in the old store after they had been copied
        for start in range(0, len(gone), limits.MOVE_PAGE_RUNS):
            some = gone[start : start + limits.MOVE_PAGE_RUNS]
            await self._try(self._new.withdraw, self._source, some)

    async def _copy_open(self) -> None:
        """In the order in which they were created, which decides who may have some published events: from the first one
        that is missing on, all are copied."""
        marks = await self._received()
        rows = [row async for page in self._listed(OPEN) for row in page][::-1]
        first = next((place for place, row in enumerate(rows) if marks.get(row.id) != mark_of(row)), len(rows))
        done = first
        for part in _parts(rows[first:]):
            done += await self._copy(part, frozenset(Status))
            self._tell(Progress("handing-over", done, len(rows)))

    # -- reading -------------------------------------------------------------------------------------------------

    async def _received(self) -> dict[str, str | None]:
        """The runs that are in the target on their way, with what they were confirmed as."""
        found: dict[str, str | None] = {}
        after: RunKey = 0
        while page := await self._try(self._new.received, self._source, after, limits.MOVE_LIST_RUNS):
            found.update({one.id: one.mark for one in page})
            after = page[-1].key
        return found

    async def _withdraw_all(self) -> int:
        gone = 0
        while page := await self._try(self._new.received, self._source, 0, limits.MOVE_PAGE_RUNS):
            gone += await self._try(self._new.withdraw, self._source, [one.id for one in page])
        return gone

    async def _withdraw_open(self) -> None:
        async for rows in self._listed(OPEN):
            await self._try(self._new.withdraw, self._source, [row.id for row in rows])

    async def _listed(self, statuses: frozenset[Status]) -> AsyncIterator[Sequence[RunRow]]:
        """The runs of the old store, newest first, page by page. No statuses: of any."""
        before: RunKey | None = None
        where = RunFilter(statuses=statuses)
        while rows := await self._try(self._old.list_runs, where, limits.MOVE_LIST_RUNS, before):
            yield rows
            before = rows[-1].key

    async def _pairs(self, rows: Sequence[RunRow]) -> list[tuple[Packed, Packed | None]]:
        """Runs of the old store, and what is under their ids in the new one."""
        found: list[tuple[Packed, Packed | None]] = []
        for part in _parts(rows):
            before = await self._try(self._old.pack, [row.key for row in part])
            here = [await self._try(self._new.get, one.run.id) for one in before]
            keys = [row.key for row in here if row is not None]
            now = {one.run.id: one for one in await self._try(self._new.pack, keys)}
            found += [(one, now.get(one.run.id)) for one in before]
        return found

    async def _try(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call of a store, repeated while that does not answer: all of them may be."""
        loop = asyncio.get_running_loop()
        give_up, wait = loop.time() + self._retry_seconds, limits.STORAGE_RETRY_SECONDS_MIN
        while True:
            try:
                return await call(*args, **kwargs)
            except StoreUnavailable:
                if loop.time() + wait > give_up:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, limits.MOVE_RETRY_PAUSE_SECONDS_MAX)


def _parts(rows: Sequence[RunRow]) -> Iterator[list[RunRow]]:
    """So many runs at once that what is read of them fits into memory."""
    part: list[RunRow] = []
    records = 0
    for row in rows:
        if part and (len(part) >= limits.MOVE_PAGE_RUNS or records + row.next_seq > limits.MOVE_PAGE_RECORDS):
            yield part
            part, records = [], 0
        part.append(row)
        records += row.next_seq
    if part:
        yield part


def _clash(run_ids: Sequence[str]) -> MoveRefused:
    named = ", ".join(repr(run_id) for run_id in run_ids[:5]) + (", ..." if len(run_ids) > 5 else "")
    return MoveRefused(
        f"the target has other runs under the same ids: {named}. Nothing was decided. Delete them there, or move to "
        "an empty store (another file, or another ?schema=)."
    )
