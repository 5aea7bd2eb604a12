"""Rebuilding a run from its journal, and the checks that its code is still the code which wrote it.

Records up to the frontier are replayed in silence; later ones (written by the last commit, not yet seen by the code)
are delivered live. Iterations of durable loops that a recorded state stands for are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import limits
from perdure.errors import Diverged
from perdure.kernel import changes, ending, journal, marks
from perdure.kernel.commands import Command
from perdure.kernel.divergence import ended_early, frontier_mismatch
from perdure.kernel.eventloop.loop import batch
from perdure.kernel.frontier import Frontier
from perdure.kernel.iterations import Loops
from perdure.kernel.journal import Body, Record
from perdure.kernel.operations.base import Operation
from perdure.kernel.operations.timer import TimerOperation
from perdure.kernel.operations.watch import watch_again

if TYPE_CHECKING:
    from perdure.kernel.run import Run

_NO_DEADLINES: dict[str, int] = {}


def replay(run: Run, records: Sequence[Record], frontier: Frontier | None) -> list[Command]:
    """Rebuild the run. Returns the commands still to be carried out; those already answered are left out."""
    journal.check_semantics(records)
    kinds = {type(record.body) for record in records}  # most journals have few, and are gone through only once
    marks.read(run, records, kinds)
    run.loops = Loops.of(records, kinds)
    if frontier is not None:
        run.first_deadlines = frontier.deadlines | {
            w.location: w.deadline for w in frontier.operations if w.kind == TimerOperation.kind and w.deadline
        }
    run.replaying = True
    run.journal = records
    try:
        with batch():
            commands = _replay(run, records, kinds, frontier)
    except Diverged as error:
        raise run.changes.explained(error, run.pending) from error.__cause__
    return [command for command in commands if command.is_wanted()]


def _replay(run: Run, records: Sequence[Record], kinds: set[type[Body]], frontier: Frontier | None) -> list[Command]:
    seen = frontier.seq if frontier is not None else 0
    taken_back = journal.taken_back(records, kinds)
    loops = run.loops
    commands: list[Command] = []
    for index, record in enumerate(records):
        if loops is not None:
            commands += _resume_loops(run, loops, record.seq)
        if run.replaying and record.seq > seen:
            commands += _end(run, frontier)
        if record.seq in taken_back or (run.changes is not changes.NONE and run.changes.passes_over(record)):
            run.last_seq, run.loop.now = record.seq, max(record.at, run.loop.now)
            if loops is not None:
                loops.note(record.seq, record.location)
            continue
        if run.outcome is not None and not record.body.may_follow_end and record.location not in run.given_up:
            raise ended_early(run.id, records[index:], ending.raised(run))
        if loops is not None and loops.passes_over(record):
            run.last_seq = record.seq
            continue
        commands += run.deliver(record)
    if loops is not None:
        commands += _resume_loops(run, loops, limits.NEVER)
    if run.replaying:
        commands += _end(run, frontier)
    return commands


def _resume_loops(run: Run, loops: Loops, seq: int) -> list[Command]:
    """Loops whose next iteration began before the record at `seq` was delivered go on, at the time it was then."""
    if loops.resume_due(run, seq):
        run.run_until_idle()
    return run.take_commands()


def _end(run: Run, frontier: Frontier | None) -> list[Command]:
    """The code is where it was when the frontier was stored. Returns what is still to be done for it."""
    run.replaying = False
    run.journal = ()
    run.first_deadlines = _NO_DEADLINES
    _check(run, frontier)
    if frontier is not None:
        if frontier.needs_notifying or frontier.unchecked:
            watch_again(run.pending)
        else:
            run.pending.receives_changed = False  # what it waits for now was stored with the frontier
    return [request for operation in run.pending if (request := operation.request()) is not None]


def _check(run: Run, frontier: Frontier | None) -> None:
    if frontier is None or frontier.unchecked:
        return
    pending = run.pending
    if run.changes.withdrawn(frontier):
        # The code went on from where it waited: what it asks for now is new. The rest must still be there.
        rest = run.changes.rest(frontier)
        if any(waiting.location not in pending for waiting in rest.operations):
            raise _mismatch(run, rest, list(pending))
        return
    asked: list[Operation] = []
    if frontier.count != len(pending) or frontier.digest != pending.digest:
        asked = list(pending)
    elif not (asked := _changed(run, frontier)):
        return
    raise _mismatch(run, frontier, asked)


def _changed(run: Run, frontier: Frontier) -> list[Operation]:
    """Operations that stand where they stood, and wait for something else."""
    return [
        operation
        for waiting in frontier.operations
        if (operation := run.pending.get(waiting.location)) is not None and not operation.still_fits(waiting)
    ]


def _mismatch(run: Run, frontier: Frontier, asked: Sequence[Operation]) -> Diverged:
    return frontier_mismatch(run.id, frontier, asked, ended=run.outcome is not None, raised=ending.raised(run))
