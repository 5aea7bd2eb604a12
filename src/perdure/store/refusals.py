"""Why a store says no, worded once for all stores: errors for clients, reasons for rejected turns."""

from __future__ import annotations

from perdure.errors import (
    BadArgument,
    DeadLetterNotFound,
    InboxFull,
    MoveRefused,
    RunFinished,
    RunMoved,
    RunNotFound,
    StoreUnavailable,
)
from perdure.store.model import CLAIMABLE
from perdure.store.turn import Rejected, Turn


def not_found(run_id: str) -> RunNotFound:
    return RunNotFound(
        f"no run has the id {run_id!r}; nothing was written. Check the id with `perdure ls`, or start the run first."
    )


def finished(run_id: str, status: str) -> RunFinished:
    return RunFinished(f"run {run_id!r} has already ended ({status}), so it takes nothing more; nothing was written.")


def inbox_full(run_id: str, kind: str, pending_max: int) -> InboxFull:
    return InboxFull(
        f"run {run_id!r} has {pending_max:,} unread events of type {kind!r}, the most it may hold. "
        "The event was refused, not dropped: send it again after the run has read some."
    )


def refused(reason: str, run_id: str, status: str, kind: str, pending_max: int) -> RunFinished | InboxFull:
    """The error for a client whose item an inbox did not take (`rules.refusal`)."""
    return finished(run_id, status) if reason == "finished" else inbox_full(run_id, kind, pending_max)


def moved(target: str, *, gone: bool) -> RunMoved | StoreUnavailable:
    """For a caller that wants to change something in a store that departs, or has gone."""
    if gone:
        return RunMoved(
            f"everything in this store was moved to {target}; nothing was written here. Open that store instead, and "
            "repeat the call there.",
            target,
        )
    return StoreUnavailable(
        f"this store is being moved to {target} just now, so it takes no changes; nothing was written. Repeat the "
        "call: in a moment it says that everything has gone there. If nobody is moving it any more, `perdure migrate` "
        "goes on with it, and `perdure migrate --undo` takes it back."
    )


def check_complete(here: int, runs: int) -> None:
    """All runs of the old store have come. Raises before anything is changed."""
    if here != runs:
        raise MoveRefused(
            f"{here:,} of {runs:,} runs are here: somebody removed some while they were moved. Nothing was changed; "
            "run the move again, which copies what is missing."
        )


def still_coming(run_id: str) -> StoreUnavailable:
    """For a caller that wants to change a run that is on its way here, and is not whole yet."""
    return StoreUnavailable(
        f"run {run_id!r} is just coming here from another store; nothing was written. Repeat the call when the move is "
        "over."
    )


#: Epoch, generation and record at which the first turn of every run starts.
FIRST_POSITION = (1, 1, 2)


def dead_letter_not_found(letter_id: int) -> DeadLetterNotFound:
    return DeadLetterNotFound(
        f"there is no dead letter {letter_id}: it was replayed or removed, or never was; nothing was written. "
        "See `perdure dead-letters list`."
    )


def check_first_turn(turn: Turn) -> None:
    """The turn that comes with `create` starts where every run starts. Raises before anything is written."""
    if (turn.epoch, turn.generation, turn.expected_seq) != FIRST_POSITION:
        raise BadArgument(
            "the first turn of a run has epoch 1, generation 1 and starts at record 2; got "
            f"epoch {turn.epoch}, generation {turn.generation}, record {turn.expected_seq}."
        )


def rejected(turn: Turn, epoch: int, generation: int, next_seq: int, status: str, owner: str | None) -> Rejected:
    """The first thing that does not fit, in the order a person would ask."""
    if turn.epoch != epoch:
        return Rejected(reason=f"another worker owns the run: its epoch is {epoch}, the turn has {turn.epoch}")
    if turn.generation != generation:
        return Rejected(reason=f"the run is in generation {generation}, the turn is of {turn.generation}")
    if turn.expected_seq != next_seq:
        return Rejected(reason=f"the next record is {next_seq}, the turn starts at {turn.expected_seq}")
    if status in CLAIMABLE and owner not in (None, turn.worker):
        return Rejected(reason=f"another worker owns the run: {owner}, the turn is of {turn.worker or 'nobody'}")
    if status in CLAIMABLE:
        return Rejected(reason="an inbox item that the turn takes was taken before")
    return Rejected(reason=f"the run is {status}")


#: The run of a turn is gone (deleted), whatever its id is used for now (FAULTS C20, C21).
GONE = Rejected(reason="the run does not exist any more")
