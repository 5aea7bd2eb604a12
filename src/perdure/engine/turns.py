"""The one place where a turn is made: what the kernel came to, with the right to commit it."""

from __future__ import annotations

import random
from collections.abc import Callable

from perdure.engine.resident import Resident
from perdure.engine.settings import Settings
from perdure.kernel.advance import Advance, Host, advance, conclude
from perdure.kernel.outcomes import Complete, Continue, EndCancelled, Fail, Outcome
from perdure.store.model import Status
from perdure.store.turn import Turn

#: What a run's status is after its generation ended like this.
_ENDED: dict[type[Outcome], Status] = {
    Complete: Status.COMPLETED,
    Fail: Status.FAILED,
    EndCancelled: Status.CANCELLED,
    Continue: Status.RUNNING,
}


class Turns:
    """Takes the turns of one worker."""

    def __init__(self, worker_id: str, settings: Settings, rng: random.Random) -> None:
        self.worker_id = worker_id
        #: The seed of a new run or generation, by its id and number. Tests have one that depends on these two alone.
        self.draw_seed: Callable[[str, int], int] = lambda run_id, generation: rng.getrandbits(63)
        #: Called before each turn; for tests.
        self.before: Callable[[Resident], None] | None = None
        self._host = Host(worker_id, settings.cancel_grace, self._draw_seed)
        self._pending_max = settings.max_pending_events

    def _draw_seed(self, run_id: str, generation: int) -> int:
        return self.draw_seed(run_id, generation)

    def take(self, resident: Resident, now: int) -> Turn | None:
        """Deliver what is there and describe what must be committed; None if nothing has to be.

        What the code asked for is left in `resident.commands`, to be carried out after the commit (or at once, when
        there is none). Raises what the kernel raises: the caller parks the run.
        """
        if self.before is not None:
            self.before(resident)
        return self._turn(resident, advance(resident.run, resident.arrivals, resident, now, self._host))

    def conclude(self, resident: Resident, taken: Advance, now: int) -> Turn | None:
        """The same from the point where everything was delivered."""
        conclude(resident.run, resident.arrivals, resident, taken, now, self._host)
        return self._turn(resident, taken)

    def _turn(self, resident: Resident, taken: Advance) -> Turn | None:
        resident.commands, resident.failures, resident.last = taken.commands, taken.failures, taken.last
        if not taken.is_news:
            return None
        ended = resident.run.outcome
        busy = Status.RUNNING if taken.is_busy else Status.WAITING
        return Turn(
            key=resident.key,
            epoch=resident.epoch,
            generation=resident.run.generation,
            expected_seq=taken.seq,
            entries=taken.entries,
            status=busy if ended is None else _ENDED[type(ended)],
            wake_at=taken.wake_at,
            at=taken.at,
            frontier=taken.frontier if taken.continued is None else None,
            consumed=taken.consumed,
            custom_status=taken.custom_status,
            state=taken.state,
            notice=taken.notice,
            continued=taken.continued,
            pending_max=self._pending_max,
            pruned=taken.pruned,
            waits=taken.waits,
            returned=taken.returned,
            dead=taken.dead,
            worker=self.worker_id,
        )
