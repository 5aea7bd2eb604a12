"""What workers ask for besides turns: to be known, to claim runs and give them back, and what is new for them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

from perdure.limits import AT_ONCE, NEVER
from perdure.store.memory import events
from perdure.store.memory.tables import Run, Tables, check_storable
from perdure.store.model import CLAIMABLE, Acquittal, Delivery, News, Release, RunKey, RunRow, Standing, Status

# -- workers ---------------------------------------------------------------------------------------------


def remove_worker(tables: Tables, worker_id: str) -> None:
    _forget(tables, worker_id)
    for run in tables.runs.values():
        if run.owner == worker_id:
            run.recoveries = 0  # it left in order: that is no recovery
    free(tables, {worker_id})


def reap(tables: Tables, worker_id: str) -> int:
    dead = tables.dead_workers - {worker_id}
    for each in dead:
        _forget(tables, each)
    owners = {run.owner for run in tables.runs.values() if run.owner is not None}
    return free(tables, dead | (owners - tables.workers.keys() - {worker_id}))


def _forget(tables: Tables, worker_id: str) -> None:
    tables.workers.pop(worker_id, None)
    tables.draining.pop(worker_id, None)


def drain(tables: Tables, worker_id: str, at: int) -> None:
    if worker_id in tables.workers:
        tables.draining.setdefault(worker_id, at)


def standings(tables: Tables) -> Mapping[str, Standing]:
    held = Counter(run.owner for run in tables.runs.values() if run.status in CLAIMABLE)
    return {each: Standing(held=held[each], draining_since=tables.draining.get(each)) for each in tables.workers}


def free(tables: Tables, owners: set[str]) -> int:
    """Take the runs of workers that are gone from them, and make them due."""
    lost = [run for run in tables.runs.values() if run.owner in owners]
    for run in lost:
        if run.status not in CLAIMABLE:
            _forget_owner(tables, run)
        elif run.status is Status.WAITING and not run.inbox:
            _disown(tables, run, NEVER if run.wake_at is None else run.wake_at)
        else:
            _disown(tables, run, AT_ONCE)
    return len(lost)


def _forget_owner(tables: Tables, run: Run) -> None:
    run.owner = None
    tables.ended_under_owner.discard(run.key)


def _disown(tables: Tables, run: Run, ready_at: int) -> None:
    run.owner = None
    if run.status is Status.RUNNING:
        run.status = Status.PENDING  # nobody runs it, and people should see that
    run.ready_at = ready_at
    tables.unowned[run.key] = run


# -- runs they hold --------------------------------------------------------------------------------------


def claim(
    tables: Tables,
    worker_id: str,
    at: int,
    limit: int,
    suspects_max: int,
    unknown: Sequence[tuple[str, str]],
    trusted: int = 0,
) -> Sequence[RunRow]:
    due = [
        run
        for run in tables.unowned.values()
        if run.ready_at <= at and (not unknown or (run.workflow, run.version) not in unknown)
    ]
    usual = (run for run in due if run.recoveries <= trusted)
    chosen = heapq.nsmallest(limit, usual, key=lambda run: (run.ready_at, run.key))
    suspects = (run for run in due if run.recoveries > trusted)
    chosen += heapq.nsmallest(suspects_max, suspects, key=lambda run: (-run.recoveries, run.ready_at, run.key))
    for run in chosen:
        del tables.unowned[run.key]
        run.owner = worker_id
        run.epoch += 1
        run.recoveries += 1
        if run.status is Status.PENDING:
            run.status = Status.RUNNING
    return [run.row() for run in chosen]


def acquit(tables: Tables, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
    for each in acquittals:
        run = tables.runs.get(each.key)
        if run is not None and run.owner == worker_id and run.epoch == each.epoch:
            run.recoveries = min(run.recoveries, each.recoveries)


def held(tables: Tables, worker_id: str) -> Mapping[RunKey, int]:
    return {run.key: run.epoch for run in tables.runs.values() if run.owner == worker_id and run.status in CLAIMABLE}


def release(tables: Tables, worker_id: str, releases: Sequence[Release]) -> None:
    for each in releases:
        run = tables.runs.get(each.key)
        if run is None or run.owner != worker_id:
            continue
        if run.status not in CLAIMABLE:
            _forget_owner(tables, run)  # ended or paused from outside: the owner has seen it
        elif run.epoch == each.epoch:
            # Looked at in the same change that gives the run up: an event that arrived after the
            # worker's last look would otherwise sleep until `ready_at` (testing/store/release.py).
            newer = any(item_id > each.seen_item for item_id in run.inbox)
            _disown(tables, run, AT_ONCE if newer else each.ready_at)
            run.recoveries, run.reason = 0, each.reason


def park(tables: Tables, key: RunKey, epoch: int, reason: str, at: int) -> bool:
    check_storable(reason)
    run = tables.runs.get(key)
    if run is None or run.epoch != epoch:
        return False
    if run.status in CLAIMABLE:
        run.status, run.owner, run.reason = Status.PARKED, None, reason
        run.updated_at = max(at, run.updated_at)  # `terminate` writes a record of that time
        tables.unowned.pop(key, None)
        events.return_held(tables, run, at)
        tables.hint()
        return True
    return run.status is Status.PARKED and run.reason == reason  # the same call again, after a lost answer


# -- what is new -----------------------------------------------------------------------------------------


def news(tables: Tables, worker_id: str, cursor: int) -> News:
    fresh: list[Delivery] = []
    for item_id in reversed(tables.arrivals) if cursor else ():
        if item_id <= cursor:
            break
        run = tables.runs[tables.arrivals[item_id]]
        if run.owner == worker_id:
            fresh.append(Delivery(run.key, worker_id, run.inbox[item_id]))
    ended = [key for key in tables.ended_under_owner if tables.runs[key].owner == worker_id]
    return News(cursor=tables.last_item, items=fresh[::-1], ended=ended)
