"""A turn: everything that one turn of one run changes, its entries and effects, and what a commit answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from perdure.kernel.effects import Entry as Entry
from perdure.kernel.effects import NextGeneration as NextGeneration
from perdure.kernel.effects import Publish as Publish
from perdure.kernel.effects import Reply as Reply
from perdure.kernel.effects import Send as Send
from perdure.kernel.effects import Spawn as Spawn
from perdure.kernel.effects import Watch as Watch
from perdure.kernel.items import DeadItem as DeadItem
from perdure.kernel.journal import Row
from perdure.kernel.operations.step import StepDone
from perdure.store.model import Delivery, NewItem, NewRun, RunKey, RunRow, Status, Struct

_RUNNING: Final = Status.RUNNING
_STEP_DONE: Final = StepDone.kind

# -- the turn -------------------------------------------------------------------------------------------------


class Turn(Struct, frozen=True, gc=False):
    """Everything one turn of one run changes, all or nothing."""

    key: RunKey
    epoch: int
    generation: int
    #: Where the first entry goes. A store whose next_seq differs refuses (or recognises) the turn.
    expected_seq: int
    entries: Sequence[Entry]
    status: Status
    wake_at: int | None
    at: int
    frontier: bytes | None = None
    #: Inbox items taken by this turn. All must be there: an item can be taken once.
    consumed: Sequence[int] = ()
    #: None leaves what is stored.
    custom_status: bytes | None = None
    state: bytes | None = None
    #: For the end of a child: what goes to its parent's inbox (ignored if the parent has ended).
    notice: NewItem | None = None
    continued: NextGeneration | None = None
    #: Unread items of one type a target may hold before `Send` is refused with `full`.
    pending_max: int = 10_000
    #: Positions of records of earlier turns to delete: iterations of loops that no replay needs any more.
    pruned: Sequence[int] = ()
    #: The types of events the run now waits for, and how many of each it could take; None: as before. In the same
    #: change the store looks for published events that the run may have: neither can miss the other.
    waits: Mapping[str, int] | None = None
    #: Published events held in this inbox that the run does not take: they go on to others.
    returned: Sequence[int] = ()
    #: Events that become dead letters instead of reaching the run.
    dead: Sequence[DeadItem] = ()
    #: Who took it. Refused if somebody else owns the run; one that nobody owns takes the turn of its last owner.
    worker: str = ""


def goes_from_step_to_step(turn: Turn) -> bool:
    """Whether a turn says nothing but this: a step of a first generation has succeeded (its one record, without an
    effect), the run goes on running, and `frontier` says for which step it waits now.

    Most turns are. A store may have a fast path for them, and decides so by itself: the builder of a turn cannot
    promise too much.
    """
    if turn.status is not _RUNNING or turn.generation != 1 or turn.wake_at is not None or turn.frontier is None:
        return False
    if turn.consumed or turn.pruned or turn.returned or turn.dead or turn.waits is not None:
        return False
    if turn.notice or turn.continued or turn.custom_status is not None or turn.state is not None:
        return False
    entries = turn.entries
    if len(entries) != 1 or (entry := entries[0]).effect:
        return False
    seq, at, kind, _, _, _ = entry.row
    return kind == _STEP_DONE and at == turn.at and seq == turn.expected_seq


def concerns_itself_only(turn: Turn) -> bool:
    """Whether a turn changes its own run and journal, and nothing else: many such can be one statement."""
    if turn.consumed or turn.pruned or turn.continued is not None or turn.notice is not None:
        return False
    if turn.waits is not None or turn.returned or turn.dead:
        return False
    return all(entry.effect is None for entry in turn.entries)


def only_opens(turn: Turn) -> bool:
    """Whether a first turn merely says what the run waits for: then it is part of the new row, not a change of it."""
    return not turn.entries and not turn.status.terminal and turn.continued is None


def ends_at_once(turn: Turn) -> bool:
    """Whether a first turn is also the last one and concerns nobody else: then it, too, is part of the new row."""
    return (
        turn.status.terminal
        and turn.notice is None
        and not (turn.waits or turn.consumed or turn.returned or turn.dead or turn.pruned)
        and all(entry.effect is None for entry in turn.entries)
    )


# -- what a commit answers ------------------------------------------------------------------------------------


class Committed(Struct, frozen=True, gc=False):
    """The turn is durable.

    `effects` holds, for each entry with an effect and in their order, the row that was written.
    `spawned` maps the ids of children created by this turn to their keys.
    """

    effects: Sequence[Row] = ()
    deliveries: Sequence[Delivery] = ()
    spawned: Mapping[str, RunKey] = {}
    #: The turn had been accepted by an earlier call whose answer got lost.
    repeated: bool = False
    #: Not every run that waits has what the turn published yet; `spread` goes on.
    more: bool = False
    #: The turn answered a request.
    replied: bool = False


#: The answer to a turn without effects on others: what most turns get.
NO_EFFECTS = Committed()


class Rejected(Struct, frozen=True, gc=False):
    """The turn changed nothing, because the sender no longer owns the run or the run has ended."""

    reason: str


CommitResult: TypeAlias = Committed | Rejected


# -- creating a run, with its first turn ----------------------------------------------------------------------

#: A run to be created and its first turn, if it was taken already.
Creation: TypeAlias = tuple[NewRun, Turn | None]


class Created(Struct, frozen=True, gc=False):
    key: RunKey
    epoch: int
    committed: Committed | None


class Existing(Struct, frozen=True, gc=False):
    """The id is taken; nothing was written."""

    row: RunRow
