"""What every store decides alike, without knowing how anything is kept: functions of what a store has read.

- whether a turn that does not fit is one that came before (`recognise`),
- who may receive what (`refusal`, `may_have`, `copies`, `waits_since`),
- what the end of a run does (`end_run`).

A fence that must hold while nobody looks (epoch, generation, position, status) is part of the change itself: a
condition of the statement in SQL, `Run.accepts` in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from perdure.kernel.journal import Row
from perdure.store import items, refusals
from perdure.store.model import (
    TERMINAL,
    Delivery,
    InboxItem,
    ItemKind,
    NewItem,
    NewRun,
    ParentLink,
    RunKey,
    Status,
)
from perdure.store.turn import CommitResult, Committed, Spawn, Turn

# -- recognising a repeated turn -------------------------------------------------------------------------


class Position(NamedTuple):
    """Where a run is: what a turn that did not fit is compared with."""

    epoch: int
    generation: int
    next_seq: int
    status: str
    owner: str | None


def recognise(
    turn: Turn,
    position: Position | None,
    stored: Callable[[], Sequence[Row]],
    key_of: Callable[[str], RunKey | None],
) -> CommitResult:
    """Answer a turn that did not fit: like the first time if an earlier call made it durable ("raised but committed",
    law 6), else with the reason why it is refused.

    `stored`: the records of its generation at the places where its own would be. `key_of`: the run of an id, if any.
    """
    if position is None:
        return refusals.GONE
    generation = turn.generation + (turn.continued is not None)
    if turn.entries and position.epoch == turn.epoch and position.generation == generation:
        repeated = _repeated(turn, stored(), key_of)
        if repeated is not None:
            return repeated
    return refusals.rejected(turn, *position)


def _repeated(turn: Turn, stored: Sequence[Row], key_of: Callable[[str], RunKey | None]) -> Committed | None:
    """The first answer again, if the journal holds exactly the records of this turn."""
    if len(stored) != len(turn.entries):
        return None
    effects: list[Row] = []
    spawned: dict[str, RunKey] = {}
    for entry, found in zip(turn.entries, stored, strict=True):
        row, effect = entry.row, entry.effect
        if found != row and (effect is None or found not in effect.refused.values()):
            return None
        if effect is not None:
            effects.append(found)
        if isinstance(effect, Spawn) and found == row and (key := key_of(effect.new.id)) is not None:
            spawned[effect.new.id] = key
    return Committed(effects=effects, spawned=spawned, repeated=True)


# -- children --------------------------------------------------------------------------------------------


class _Child(Protocol):
    @property
    def parent(self) -> ParentLink | None: ...
    @property
    def input_digest(self) -> bytes: ...
    @property
    def workflow(self) -> str: ...


def link_to(key: RunKey, new: NewRun) -> ParentLink | None:
    """The link of a child to the run that starts it. The builder of the first turn of that run did not know its key."""
    return new.parent and ParentLink(key=key, generation=new.parent.generation, location=new.parent.location)


def is_same_child(taken: _Child, new: NewRun, link: ParentLink | None) -> bool:
    """Whether the run that has the id of a child is that child, started before by the same run at the same place."""
    started = (taken.parent, taken.input_digest, taken.workflow)
    return link is not None and started == (link, new.input_digest, new.workflow)


# -- who may receive what --------------------------------------------------------------------------------

Refusal = Literal["", "finished", "full"]


def refusal(
    item: NewItem, status: str, *, seen: bool, cancel_requested: bool, is_full: Callable[[], bool]
) -> Refusal | None:
    """Why an inbox does not take an item; empty: it has had it before. None: it takes the item."""
    # Before anything else: the repeat of a call whose answer got lost must succeed, also if the run has read the first
    # one and ended since (testing/store/inbox.py).
    if seen:
        return ""
    if status in TERMINAL:
        return "finished"
    if item.kind is ItemKind.CANCEL:
        return "" if cancel_requested else None
    return "full" if item.kind is ItemKind.EVENT and is_full() else None


class Publication(Protocol):
    """What decides about a published event."""

    @property
    def id(self) -> int: ...
    @property
    def delivery(self) -> str: ...
    @property
    def expires_at(self) -> int | None: ...
    @property
    def last_run(self) -> RunKey: ...


P = TypeVar("P", bound=Publication)


def may_have(published: Publication, key: RunKey, since: int | None, at: int) -> bool:
    """Whether a run may have a published event; `since`: the newest publication when that run began to wait."""
    if is_over(published.expires_at, at):
        return False
    match published.delivery:
        case "after_create":
            return key <= published.last_run
        case "after_wait":
            return since is not None and since < published.id
        case _:
            return True


def copies(log: Iterable[P], key: RunKey, since: int | None, at: int, room: int) -> tuple[list[P], int]:
    """The shared events of a log that a run gets now, and up to which of them it has had all that are for it (0: none).

    All that are new, in order: a later one must not overtake. What there is no room for comes when it has read some.
    """
    given: list[P] = []
    had = 0
    for published in log:
        if may_have(published, key, since, at):
            if room <= len(given):
                break
            given.append(published)
        had = published.id
    return given, had


def waits_since(wanted: int, wanted_before: int, since: int, last_publication: int) -> int:
    """The newest publication when a run began to wait for a type: as it was, unless it begins now."""
    return last_publication if wanted and not wanted_before else since


def is_over(expires_at: int | None, at: int) -> bool:
    """Whether the time of an event is over: then nobody gets it."""
    return expires_at is not None and expires_at <= at


def is_held(item: InboxItem) -> bool:
    """Whether an item is a published event that only this run has: nobody else gets it meanwhile."""
    return bool(item.publication) and item.policy.single


# -- the end of a run ------------------------------------------------------------------------------------


class RunEnd(Protocol):
    """What a store does for a run that has ended; `end_run` says when. Each in the change that ends the run."""

    def return_held(self) -> Sequence[Delivery]:
        """Published events that it holds go on to others."""
        ...

    def end_waits(self, *, keep_positions: bool) -> None:
        """It waits for nothing any more. `keep_positions`: how far it was in each log is not forgotten."""
        ...

    def take_unread(self) -> Sequence[InboxItem]:
        """Empty its inbox."""
        ...

    def count_expired(self, item: InboxItem) -> None: ...

    def add_dead_letter(self, item: InboxItem, reason: str) -> None: ...

    def publish(self, item: NewItem) -> Sequence[Delivery]: ...

    def take_watchers(self) -> Sequence[tuple[RunKey, int, str]]:
        """The runs that wait for its end: key, generation and location of each. They are told once."""
        ...

    def tell(self, watcher: RunKey, item: NewItem) -> Sequence[Delivery]:
        """Put the news into the inbox of a run, if that is still open."""
        ...


def end_run(ending: RunEnd, run_id: str, status: Status, last: Row, at: int) -> list[Delivery]:
    """A run has ended: its unread events go where their class says, and the runs that watch it are told."""
    deliveries = [*ending.return_held()]
    # One that failed may be reopened, and must not get a second time what it has had.
    ending.end_waits(keep_positions=status is Status.FAILED)
    for item in ending.take_unread():
        match _destination(item, at):
            case "expired":
                ending.count_expired(item)
            case "dead_letter":
                ending.add_dead_letter(item, items.UNREAD)
            case "broadcast":
                deliveries += ending.publish(items.event_again(item, at))
            case _:
                pass
    for watcher, generation, location in ending.take_watchers():
        deliveries += ending.tell(watcher, items.end_item(last, run_id, generation, location, at))
    return deliveries


def _destination(item: InboxItem, at: int) -> str:
    """Where an item goes that its run has not read when it ends."""
    if item.kind is not ItemKind.EVENT or item.publication:
        return "nowhere"  # a copy: the others have theirs
    return "expired" if is_over(item.expires_at, at) else item.policy.undelivered
