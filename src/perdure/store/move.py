"""The vocabulary of a move: all that one store has goes to another, and a run may be claimed in only one of them.

    the old store                                 the new store
    ─────────────                                 ─────────────
    works on; starts and events are taken         receive, confirm: ended runs, page by page, checksums compared
    depart: in one change every open run is
      fenced, and nothing more is taken
      (callers: `StoreUnavailable`, repeat)       receive, confirm: the open runs, ARRIVING: nobody can claim them
    leave: for good (callers: `RunMoved`)         -
    read-only                                     arrive: in one change everything is claimable, with its events

Each line is a call that may be repeated. The mover keeps nothing of its own: killed anywhere, it finds its place by
`departure` of the old store and `received` of the new one. Until `leave`, `stay` takes everything back. `leave` is
where it is decided: before it no run can be claimed in the new store, and since `depart` none in the old one.

What refers to other things of a store travels by the names that mean something elsewhere: runs by their ids; published
events by their old numbers, which `arrive` replaces.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from perdure.kernel.definitions import EventPolicy
from perdure.kernel.journal import Row
from perdure.store.model import CLAIMABLE, DeadLetter, InboxItem, ItemKind, RunKey, RunRow, Status, Struct


class Departure(Struct, frozen=True, gc=False):
    """Where the runs of a store are going, or (`gone`) have gone."""

    #: The URL without its password, as people may see it.
    target: str
    #: `identity` of that store.
    target_id: str
    at: int
    gone: bool


class Waiting(Struct, frozen=True, gc=False):
    """What a run has to do with a type of published events. `since`, `shared` and `refused` are numbers of events."""

    type: str
    wanted: int
    held: int
    since: int
    shared: int
    refused: Sequence[int] = ()


class Relations(Struct, frozen=True, gc=False):
    """How a run hangs together with others. Empty for most."""

    #: The id of its parent, and where it started this run: generation and location.
    parent: tuple[str, int, str] | None = None
    waits: Sequence[Waiting] = ()
    #: The runs that are to hear of its end: id, generation and location of each.
    watchers: Sequence[tuple[str, int, str]] = ()


NO_RELATIONS = Relations()


def has_relations(relations: Relations) -> bool:
    """Whether there is anything in them."""
    return bool(relations.parent is not None or relations.waits or relations.watchers)


class Packed(Struct, frozen=True, gc=False):
    """A whole run, as it will be elsewhere.

    Of `run` the epoch, owner, recoveries, parent and last_item do not count, and the key is that of the store that it
    was read from. Of items the numbers do not count; `publication` is one of the store that it was read from.
    """

    run: RunRow
    journals: Mapping[int, Sequence[Row]]
    inbox: Sequence[InboxItem] = ()
    #: `dedup` keys that it has seen: a send that is repeated in the new store counts once all the same.
    keys: Sequence[str] = ()
    relations: Relations = NO_RELATIONS


class MovedPublication(Struct, frozen=True, gc=False):
    """A published event that somebody may still get."""

    id: int
    type: str
    data: bytes
    published_at: int
    policy: EventPolicy
    expires_at: int | None
    #: The newest run when it was published: a key of the old store.
    last_run: RunKey
    #: The id of the run in whose inbox it is.
    holder: str | None
    #: Not all runs that waited have it yet.
    spreading: bool


class Remainder(Struct, frozen=True, gc=False):
    """What a store has that belongs to no single run."""

    publications: Sequence[MovedPublication] = ()
    publication_keys: Sequence[tuple[str, int]] = ()
    dead_letters: Sequence[DeadLetter] = ()
    #: Answers to requests: name, answer and time of each.
    replies: Sequence[tuple[str, bytes, int]] = ()
    expired: Mapping[str, int] = {}
    #: How many runs there are.
    runs: int = 0
    #: The types of events that were published, or are waited for.
    types: Sequence[str] = ()


class Receipt(Struct, frozen=True, gc=False):
    """What became of runs that were brought."""

    #: The keys that they have here, by id.
    keys: Mapping[str, RunKey]
    #: Ids that other runs of this store have: those runs were left alone.
    taken: Sequence[str] = ()


class Received(Struct, frozen=True, gc=False):
    """A run that is here on its way."""

    key: RunKey
    id: str
    #: What `confirm` was told; None: not confirmed.
    mark: str | None


#: Stands for all types in the waits of a run: see `store.memory.events`.
EVERY: Final = ""

# -- what is the same in both stores ---------------------------------------------------------------------


def mark_of(row: RunRow) -> str:
    """By this a copy is known to be of the run as it is now: it changes whenever the run does. Of an open run only
    while it is fenced, since its inbox may fill without it."""
    return f"{row.key}.{row.epoch}.{row.generation}.{row.next_seq}"


def status_elsewhere(status: Status) -> Status:
    """Nobody works on a run that has just arrived: it is pending, unless it is to stay as it is."""
    return Status.PENDING if status in CLAIMABLE or status in (Status.MOVED, Status.ARRIVING) else status


def items_elsewhere(inbox: Sequence[InboxItem]) -> list[InboxItem]:
    """Without what is for the worker that held the run."""
    return [item for item in inbox if item.kind is not ItemKind.PAUSE]


def checksum(packed: Packed, *, settled: bool = False) -> str:
    """Of everything about a run that means something elsewhere. Equal: not a byte of it differs.

    `settled`: without what `arrive` makes of its relations to events.
    """
    run, relations = packed.run, packed.relations
    body = (
        run.id, run.generation, run.workflow, run.version, status_elsewhere(run.status), run.next_seq, run.wake_at,
        run.created_at, run.updated_at, run.finished_at, run.input_digest, run.cancel_requested, run.frontier,
        run.reason, run.custom_status, run.state, run.pruned, sorted(packed.keys), relations.parent,
        [(number, [tuple(row) for row in rows]) for number, rows in sorted(packed.journals.items()) if rows],
        [
            (item.kind, item.type, item.data, item.sent_at, item.policy, item.expires_at, item.request,
             bool(item.publication))
            for item in packed.inbox
        ],
        () if settled else (sorted(relations.waits, key=lambda wait: wait.type), sorted(relations.watchers)),
    )  # fmt: skip
    return blake2b(msgspec.msgpack.encode(body), digest_size=16).hexdigest()


def journal_goes_on(before: Packed, now: Packed) -> bool:
    """Whether the records of a run that moved are there, byte for byte, as far as it has not deleted them since."""
    for number, rows in before.journals.items():
        here = {row.seq: row for row in now.journals.get(number, ())}
        pruned = now.run.pruned if number == now.run.generation else None
        missing = [row for row in rows if row.seq not in here]
        if any(here.get(row.seq, row) != row for row in rows) or (missing and pruned == 0):
            return False
    return (now.run.generation, now.run.next_seq) >= (before.run.generation, before.run.next_seq)


# -- positions among published events --------------------------------------------------------------------


class Numbers:
    """The numbers that published events have in the new store. In order: what came later does so there, too."""

    def __init__(self, base: int) -> None:
        #: The newest one of the new store before those that move: nothing up to it is for a run that arrives.
        self.base = base
        self._old: list[int] = []
        self._new: list[int] = []

    def add(self, old: int, new: int) -> None:
        """The next one, in the order of publishing."""
        self._old.append(old)
        self._new.append(new)

    def position(self, old: int) -> int:
        """Where a run stands that has had everything up to the old number."""
        place = bisect_right(self._old, old)
        return self._new[place - 1] if place else self.base

    def of(self, old: int) -> int | None:
        """The number of this very event, if somebody may still get it."""
        place = bisect_left(self._old, old)
        return self._new[place] if place < len(self._old) and self._old[place] == old else None


def arriving_waits(waits: Sequence[Waiting], numbers: Numbers) -> list[Waiting]:
    """What a run has to do with events, by their numbers in the new store. What was published there before is not for
    it, also of types that it has not waited for yet (`EVERY`)."""
    found = [
        Waiting(
            type=wait.type,
            wanted=wait.wanted,
            held=wait.held,
            since=numbers.position(wait.since),
            shared=numbers.position(wait.shared),
            refused=[new for old in wait.refused if (new := numbers.of(old)) is not None],
        )
        for wait in waits
    ]
    if numbers.base and all(wait.type != EVERY for wait in waits):
        found.append(Waiting(type=EVERY, wanted=0, held=0, since=0, shared=numbers.base))
    return found


def newest_before(keys: Sequence[tuple[RunKey, RunKey]], last_run: RunKey) -> RunKey:
    """The newest run of the new store that was created before an event was published in the old one. `keys`: the old
    and the new ones of the runs that arrive."""
    return max((new for old, new in keys if old <= last_run), default=0)
