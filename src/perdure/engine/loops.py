"""What durable loops add to a turn: their states as records, and the positions of the records that may go."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engine.resident import Resident
from perdure.kernel.iterations import Loops
from perdure.kernel.journal import Record, to_row
from perdure.store.base import Entry


def save_loops(resident: Resident, loops: Loops, at: int, entries: list[Entry]) -> None:
    """Append the state of each loop that finished an iteration. Of several iterations only the last one counts."""
    if resident.run.outcome is not None:
        return  # nobody will go on from it
    for location, body in loops.take_saves():
        seq = resident.next_seq + len(entries)
        entries.append(Entry(to_row(Record(seq, at, location, body))))
        loops.note_state(seq, location)


def prunable(resident: Resident) -> Sequence[int]:
    """Records of earlier turns that no replay needs once this turn is durable."""
    loops = resident.run.loops
    return () if loops is None else loops.take_prunable(resident.next_seq)
