"""Loading: a stored run becomes resident, or is given back. So do the children that a turn created."""

from __future__ import annotations

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.engine.outages import Outages
from perdure.engine.resident import Resident
from perdure.engine.watchdog import Watchdog
from perdure.engine.worker.leaving import Leaving, reason_of
from perdure.engine.worker.lifetime import Lifetime
from perdure.engine.worker.probation import Probation
from perdure.engine.worker.requests import SweepRequests
from perdure.engine.worker.residents import Residents
from perdure.engine.worker.runs import RunFactory
from perdure.kernel.arrivals import Arrivals
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.frontier import decode_frontier
from perdure.kernel.journal import from_row
from perdure.store.items import decode_journal
from perdure.store.model import CLAIMABLE, Loaded, NewRun, Release, RunKey, RunRow, Status
from perdure.store.turn import Committed, Spawn, Turn

#: Whether there was work for a run, by the status it is stored with; not of one that no worker has begun with.
_BUSY = {Status.RUNNING: True, Status.WAITING: False}


class Loading:
    def __init__(
        self,
        worker_id: str,
        registry: Registry,
        recoveries_max: int,
        runs: RunFactory,
        residents: Residents,
        leaving: Leaving,
        probation: Probation,
        requests: SweepRequests,
        watchdog: Watchdog,
        outages: Outages,
        lifetime: Lifetime,
    ) -> None:
        self._worker_id = worker_id
        self._registry = registry
        self._recoveries_max = recoveries_max
        self._runs = runs
        self._residents = residents
        self._leaving = leaving
        self._probation = probation
        self._requests = requests
        self._watchdog = watchdog
        self._outages = outages
        self._lifetime = lifetime
        self._unknown: set[tuple[str, str]] = set()

    # -- runs from the store -----------------------------------------------------------------------------------

    def admit(self, loaded: Loaded) -> None:
        """Rebuild a claimed run from its journal. Must be called from a plain loop callback."""
        row = loaded.run
        if not self._is_wanted(row):
            return
        if row.recoveries > self._recoveries_max:
            reason = (
                f"poisoned: the worker died {row.recoveries - 1} times in a row while running it, without progress. "
                f"Look at what its next step does, then `perdure resume {row.id}`."
            )
            self._leaving.park_stored(row.key, row.epoch, row.id, reason)
            return
        spec = self._registry.workflow(row.workflow, row.version)
        if spec is None:
            self._release_unknown(row)
            return
        resident = self._rebuilt(loaded, spec)
        if resident is None:
            return
        self._residents.register(resident)
        if self._probation.is_suspect(row):
            self._probation.begin(row)
        self._residents.mark_ready(resident)

    def _is_wanted(self, row: RunRow) -> bool:
        if row.status not in CLAIMABLE or row.owner != self._worker_id:
            # Paused, ended or taken by another worker between the claim and the load. Its epoch is in the row: without
            # this look two workers would commit under one (tests/races/test_claim_vs_load.py).
            return False
        if self._lifetime.closed or self._leaving.is_giving_back(row.key, row.epoch):
            return False  # being given back at this very moment: it will be due when that is done
        stale = self._residents.find(row.key)
        if stale is not None:
            if stale.epoch >= row.epoch:
                return False
            self._leaving.drop(stale)  # given back and claimed anew: what is in memory has lost its right to commit
        return True

    def _rebuilt(self, loaded: Loaded, spec: WorkflowSpec) -> Resident | None:
        """The run as its journal has it. None: it is parked, because its code or its records do not fit."""
        row = loaded.run
        run = self._runs.go_on(spec, row.id, row.generation)
        try:
            records = decode_journal(loaded)
            frontier = decode_frontier(row.frontier) if row.frontier is not None else None
            with self._watchdog:
                commands = run.replay(records, frontier)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._leaving.park_stored(row.key, row.epoch, row.id, reason_of(error))
            run.close()
            return None
        arrivals = Arrivals.of(loaded.inbox, row.last_item)
        arrivals.commands = commands
        resident = Resident(row.key, row.epoch, row.next_seq, row.parent, row.pruned, run=run, arrivals=arrivals)
        resident.saved_status, resident.saved_state = row.custom_status, row.state
        resident.saved_wake, resident.saved_busy = row.wake_at, _BUSY.get(row.status)
        if frontier is not None:
            resident.saved_count, resident.saved_digest = frontier.count, frontier.digest
        resident.claimed_seq = row.next_seq
        return resident

    # -- workflows that nobody has registered here ---------------------------------------------------------------

    def _release_unknown(self, row: RunRow) -> None:
        self._unknown.add((row.workflow, row.version))
        reason = f"no worker knows workflow {row.workflow!r} version {row.version!r}"
        self._outages.warn_rarely(reason, "run %r waits: %s", row.id, reason)
        self._leaving.give_back(
            Release(key=row.key, epoch=row.epoch, seen_item=row.last_item, ready_at=limits.AT_ONCE, reason=reason)
        )

    def unknown_workflows(self) -> list[tuple[str, str]]:
        """Workflows and versions that were met here and that nobody has registered since: left for other workers."""
        self._unknown = {pair for pair in self._unknown if self._registry.workflow(*pair) is None}
        return sorted(self._unknown)

    # -- runs that were just created -----------------------------------------------------------------------------

    def enter(self, resident: Resident, cursor: int) -> None:
        """A run that was just created enters memory. News read since `cursor` could not reach it yet."""
        self._residents.register(resident)
        if self._requests.cursor != cursor:
            self._requests.reread_news(cursor)

    def begin_children(self, parent: Turn, committed: Committed, cursor: int) -> None:
        """Children created by a turn belong to this worker from their first moment: no claim, no read."""
        for entry in parent.entries:
            if isinstance(entry.effect, Spawn):
                new = entry.effect.new
                key = committed.spawned.get(new.id)
                if key is not None and new.owner == self._worker_id and self._residents.find(key) is None:
                    self._begin_child(key, new, cursor)

    def _begin_child(self, key: RunKey, new: NewRun, cursor: int) -> None:
        spec = self._registry.workflow(new.workflow, new.version)
        if spec is None:  # described by a workflow object that is not registered here any more
            return
        run = self._runs.go_on(spec, new.id, 1)
        arrivals = Arrivals(written=(from_row(new.started),))
        resident = Resident(key, 1, 2, new.parent, run=run, arrivals=arrivals)
        self.enter(resident, cursor)
        self._residents.mark_ready(resident)

    def expects(self, run_id: str) -> bool:
        """Whether a turn is in flight that creates a child of this id."""
        turns = (resident.in_flight for resident in self._residents if resident.in_flight is not None)
        effects = (entry.effect for turn in turns for entry in turn.entries)
        return any(isinstance(effect, Spawn) and effect.new.id == run_id for effect in effects)

    def adopt_children(self, turn: Turn) -> None:
        """The turn may be durable, and nothing here will go on from its answer: the children it created are stored as
        this worker's, and no other would ever look at them (tests/children/test_lost_answers.py)."""
        for entry in turn.entries:
            if isinstance(entry.effect, Spawn):
                self._requests.adopt_run(entry.effect.new.id)
