"""A run in a worker's memory: what the store has of it, its kernel object, and what the worker does for it.

Changed by these alone, on the thread of the host loop: `Residents` (what it is doing), `Turns` (what a turn came to),
`Committing` (what followed from it), `StepRunner` and `Outcomes` (its attempts and what came of them), `Loading` and
`Starting` (how it begins), and the fast path in the place of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.kernel.advance import Stored
from perdure.kernel.arrivals import Arrivals, StepOutcome
from perdure.kernel.commands import Command
from perdure.kernel.journal import Record
from perdure.kernel.run import Run
from perdure.store.turn import Turn

if TYPE_CHECKING:
    from perdure.engine.attempts import Attempt


class Resident(Stored, kw_only=True, eq=False):
    """See the module docstring."""

    run: Run
    arrivals: Arrivals
    #: Attempts running now, by location.
    attempts: dict[str, Attempt] = msgspec.field(default_factory=dict)
    #: Asked for by the code, to be carried out when the turn in flight is durable.
    commands: list[Command] = msgspec.field(default_factory=list)
    #: Failed attempts, to be logged and told to `on_retry` hooks when they are durable.
    failures: Sequence[StepOutcome] = ()
    #: The turn being committed. Until it is answered the run gets nothing new.
    in_flight: Turn | None = None
    queued: bool = False
    #: The record that ends the run, once the turn with it is built.
    last: Record | None = None
    #: Whether this object stands for its run in the worker's memory. Set by `Residents` alone.
    is_current: bool = False
    #: Whether it is among the idle ones. Set by `Residents` alone.
    is_waiting: bool = False
    #: Where the journal ended when the run was claimed, until it is known that it only waits; 0: begun here.
    claimed_seq: int = 0

    def __repr__(self) -> str:
        return f"<resident {self.id!r}>"  # what it holds is the user's, and logs show this

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def is_idle(self) -> bool:
        """Nothing is going on: it waits for time or for the outside."""
        arrivals = self.arrivals
        return not (
            self.attempts
            or arrivals.outcomes
            or arrivals.written
            or self.in_flight
            or self.queued
            or self.commands
            or arrivals.commands
        )
