"""The frontier: how far the code of a run had got when a turn was stored, and what it then waited for.

Kept with every turn. It is how other processes see why a run does not move, and how a replay knows that the code is
where it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from perdure import limits
from perdure.kernel.operations.base import Operation
from perdure.kernel.operations.step import StepOperation
from perdure.kernel.operations.timer import TimerOperation


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One pending operation, as other processes see it."""

    kind: str
    location: str
    since: int
    deadline: int | None = None
    site: str = ""
    detail: str = ""


class Frontier(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Stored with every turn: how far the code had run, and what it was then waiting for.

    Three uses. People see why a run is not moving. A replay knows which records the code has already seen
    (`seq`), so logs are not repeated. And code that changed without yet contradicting a record is caught
    all the same: after replaying to `seq` it must wait for exactly these operations (`count`, `digest`).
    """

    seq: int
    count: int
    digest: int
    operations: tuple[Waiting, ...] = ()
    #: Deadlines of timers that are not among the operations shown.
    deadlines: dict[str, int] = {}
    #: Made from outside (a resumed or forked run), where nobody could know what the code will wait for.
    unchecked: bool = False
    #: Of a run that was brought in from outside: its store does not know yet which events and ends it waits for.
    needs_notifying: bool = msgspec.field(default=False, name="untold")


_encode_frontier = msgspec.json.Encoder().encode
_frontier_decoder = msgspec.json.Decoder(Frontier)


def _waiting(operation: Operation) -> Waiting:
    if type(operation) is StepOperation and not operation.attempts:  # the usual case, without any calls
        return Waiting("step", operation.location, operation.asked_at, None, operation.site)
    return Waiting(
        operation.kind,
        operation.location,
        operation.asked_at,
        operation.deadline(),
        operation.site,
        operation.detail(),
    )


def encode_step_frontier(seq: int, step: StepOperation) -> bytes:
    """The frontier of a run that waits for one step, which has not failed yet, and for nothing else."""
    waiting = Waiting("step", step.location, step.asked_at, None, step.site)
    return _encode_frontier(Frontier(seq, 1, step.digest, (waiting,)))


def encode_frontier(
    seq: int, count: int, digest: int, operations: Iterable[Operation], timers: Iterable[TimerOperation]
) -> bytes:
    if not count:
        return _encode_frontier(Frontier(seq, 0, digest))
    shown = tuple([_waiting(o) for o in islice(operations, limits.FRONTIER_OPERATIONS_MAX)])
    if count <= limits.FRONTIER_OPERATIONS_MAX:
        return _encode_frontier(Frontier(seq, count, digest, shown))
    deadlines = {timer.location: timer.at for timer in islice(timers, limits.FRONTIER_DEADLINES_MAX)}
    return _encode_frontier(Frontier(seq, count, digest, shown, deadlines))


def unchecked_frontier(seq: int) -> bytes:
    """A frontier that only says how far the code had run."""
    return _encode_frontier(Frontier(seq, 0, 0, unchecked=True))


def decode_frontier(data: bytes) -> Frontier:
    return _frontier_decoder.decode(data)


def to_be_notified(frontier: bytes | None) -> bytes | None:
    """The same frontier for another store, which has to be told what the run waits for. Damage is left as it is: the
    run is parked for it when it is loaded."""
    if frontier is None:
        return None
    try:
        found = decode_frontier(frontier)
    except msgspec.MsgspecError:
        return frontier
    return _encode_frontier(msgspec.structs.replace(found, needs_notifying=True))
