"""Durable loops, as far as the journal is concerned: what stands for iterations that need not be repeated.

What an iteration is, and how a loop runs: `kernel.iterations`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Raw

from perdure.kernel.journal import ABSENT, Body, Record
from perdure.kernel.operations.base import Operation, settle

if TYPE_CHECKING:
    from perdure.kernel.run import Run


class LoopState(Body, frozen=True, gc=False):
    """An iteration of a `loop` is over, with everything in it: a replay goes on after it, with this state.

    Written at the end of the turn in which the iteration ended; `after` and `now` say where in that turn this was.
    The older iterations' records may be deleted in the commit that writes this.
    """

    kind = "loop_state"
    about = "loop"
    stands_for_others = True

    iteration: int
    state: Raw
    after: int  # the last record delivered to the code when the iteration ended
    now: int  # the run's time at that moment
    status: Raw = ABSENT  # what `status(...)` last said
    values: Raw = ABSENT  # the run's `state`


class LoopOperation(Operation, eq=False):
    """Only in a replay: a loop that stands still until the replay has passed the iterations it need not repeat."""

    kind = "loop"

    resume: Callable[[LoopState], None]


def ask(run: Run, location: str, resume: Callable[[LoopState], None]) -> None:
    run.pending.add(LoopOperation(location, run.count(), run.now, "", resume))


def state_after(run: Run, iteration: int, data: bytes) -> LoopState:
    """What a replay needs to go on after this iteration."""
    status, values = run.custom_status, run.encoded_state()
    return LoopState(
        iteration,
        Raw(data),
        run.last_seq,
        run.now,
        ABSENT if status is None else Raw(status),
        ABSENT if values is None else Raw(values),
    )


def go_on(run: Run, record: Record, state: LoopState) -> None:
    """In a replay: the loop goes on with the next iteration, at the time and with the status that were then."""
    run.loop.now = max(run.loop.now, state.now)
    if state.status:
        run.custom_status = bytes(state.status)
    if state.values:
        run.set_state(state.values)
    settle(run, record, LoopOperation).resume(state)
