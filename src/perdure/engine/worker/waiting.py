"""After a turn: a run goes on if there is more for it, else it waits, and may leave memory for others."""

from __future__ import annotations

from perdure.engine.clock import Timekeeper
from perdure.engine.resident import Resident
from perdure.engine.worker.deadlines import Deadlines
from perdure.engine.worker.leaving import Leaving
from perdure.engine.worker.residents import Residents
from perdure.kernel.arrivals import as_judged

#: How far ahead runs are loaded whose time is near, in intervals of the sweep; these vary by a fifth.
_HORIZON_SWEEPS = 1.5


class Waiting:
    def __init__(
        self, clock: Timekeeper, sweep_interval: float, residents: Residents, deadlines: Deadlines, leaving: Leaving
    ) -> None:
        self._clock = clock
        self._ahead = round(sweep_interval * _HORIZON_SWEEPS * 1_000_000)
        self._residents = residents
        self._deadlines = deadlines
        self._leaving = leaving

    def settle(self, resident: Resident) -> None:
        """Go on if there is more, else wait."""
        if not resident.is_current:
            return
        run, arrivals = resident.run, resident.arrivals
        deadline = resident.saved_wake
        more = arrivals.written or arrivals.outcomes or arrivals.others
        if deadline is None and resident.attempts and not more and not arrivals.unread:
            self._deadlines.set(resident.key, None)  # the common case: steps run, nothing else is going on
            return
        now = self._clock.now()
        due = deadline is not None and deadline <= now
        if more or due or arrivals.match(run.pending.receives.values(), as_judged) is not None:
            self._residents.mark_ready(resident)
            return
        self._deadlines.set(resident.key, deadline)
        if resident.claimed_seq == resident.next_seq and not resident.attempts and self._is_far(deadline, now):
            self._leaving.rests(resident)
        self._residents.mark_waiting(resident)
        for evicted in self._residents.evict(self.horizon(now)):
            self._leaving.evict(evicted)

    def horizon(self, now: int) -> int:
        """What is due before this is better kept in memory: the next sweep might come too late to load it."""
        return now + self._ahead

    def _is_far(self, deadline: int | None, now: int) -> bool:
        """Whether a run will wait for some time. One that moves before long shows more than one that rests."""
        return deadline is None or deadline > self.horizon(now)
