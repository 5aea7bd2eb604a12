"""What people do to a run while it is open, and what they do with old ones. Each is one atomic change of the store.

Every function may be repeated after `StoreUnavailable`: what was done is not done again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from perdure import limits
from perdure.admin.reading import frontier_of, row_of
from perdure.errors import ActionRefused, BadArgument, StoreUnavailable, UnknownLocation
from perdure.kernel.verbs.checks import check_reason, check_text
from perdure.store.items import retry_now_item
from perdure.store.model import CLAIMABLE, TERMINAL, Delivery, RunFilter, RunKey, RunRow, Status
from perdure.store.protocol import Store
from perdure.store.refusals import moved


async def pause(store: Store, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
    """Stop a run until `unpause`. None if it is paused already. Raises `RunNotFound`, `ActionRefused`."""
    by = check_reason(reason)
    text = f"paused by {by}" if by else "paused"
    row = await row_of(store, run_id)
    await _refuse_if_moved(store, row)
    told = await store.pause(run_id, text, at)
    if told is None:
        row = await row_of(store, run_id)
        if row.status is Status.PAUSED:
            return None
        raise ActionRefused(f"run {run_id!r} cannot be paused: {_stands(row)}")
    return told


async def unpause(store: Store, run_id: str, at: int) -> bool:
    """Let a paused run go on. False if it is not paused. Raises `RunNotFound`, `ActionRefused`."""
    row = await row_of(store, run_id)
    await _refuse_if_moved(store, row)
    if row.status is not Status.PAUSED and row.status not in CLAIMABLE:
        raise ActionRefused(f"run {run_id!r} cannot be unpaused: {_stands(row)}")
    return await store.unpause(run_id, at)


async def retry(store: Store, run_id: str, location: str, at: int) -> Delivery | None:
    """End the backoff of a step (of all, with ""): its next attempt begins at once.

    Raises `RunNotFound`, `UnknownLocation`, and `ActionRefused` if nothing is in a backoff.
    """
    location = check_text(location, "the location")
    row = await row_of(store, run_id)
    await _refuse_if_moved(store, row)
    if row.status not in CLAIMABLE:
        raise ActionRefused(f"run {run_id!r} has no step to retry: {_stands(row)}")
    frontier = frontier_of(row)
    waits = frontier.operations if frontier is not None else ()
    backing_off = [wait.location for wait in waits if wait.kind == "step" and wait.deadline]
    if not backing_off:
        raise ActionRefused(
            f"no step of run {run_id!r} waits for its next attempt. `perdure why {run_id}` says what it waits for."
        )
    if location and location not in backing_off:
        raise UnknownLocation(
            f"no step of run {run_id!r} at {location!r} waits for its next attempt; these do: {_listed(backing_off)}."
        )
    return (await store.append(run_id, retry_now_item(location, at), limits.PENDING_EVENTS_MAX_DEFAULT)).delivery


async def delete(store: Store, run_id: str, at: int) -> None:
    """Remove an ended run, with its journals and what nobody read. Raises `RunNotFound`, `ActionRefused`."""
    row = await row_of(store, run_id)
    if row.status not in TERMINAL:
        raise ActionRefused(
            f"run {run_id!r} is {row.status}. End it first: `perdure cancel {run_id}`, or `perdure terminate {run_id}`."
        )
    if row.owner is not None:
        await store.reap("", at)  # its worker may be dead, and nobody else there to notice
    try:
        if await store.delete([row.key]):
            return
    except StoreUnavailable:  # it may have happened all the same: a repeat would hear that there is no such run
        again = await store.get(run_id)
        if again is not None and again.key == row.key:
            raise
        return
    again = await store.get(run_id)
    if again is not None and again.key == row.key:
        raise ActionRefused(f"run {run_id!r} was ended a moment ago and its worker still holds it. Try again shortly.")


async def prune(
    store: Store, finished_before: int, statuses: Iterable[Status] = TERMINAL, workflow: str | None = None,
    *, dry_run: bool = False,
) -> AsyncIterator[int]:  # fmt: skip
    """Remove runs that ended before a moment, in small transactions. Yields how many after each."""
    wanted = frozenset(statuses)
    if not wanted <= TERMINAL:
        raise BadArgument(f"only ended runs can be pruned: {', '.join(sorted(TERMINAL))}.")
    workflow = check_text(workflow, "workflow")
    where = RunFilter(statuses=wanted, workflow=workflow, finished_before=finished_before)
    before: RunKey | None = None
    while rows := await store.list_runs(where, limits.PRUNE_BATCH, before):
        before = rows[-1].key
        yield len(rows) if dry_run else await store.delete([row.key for row in rows])


async def _refuse_if_moved(store: Store, row: RunRow) -> None:
    """Raises `RunMoved`, or `StoreUnavailable` while it is moved."""
    if row.status is Status.MOVED and (departure := await store.departure()) is not None:
        raise moved(departure.target, gone=departure.gone)


def _stands(row: RunRow) -> str:
    """How a run stands, and what to do about it."""
    match row.status:
        case Status.PARKED:
            return f"it is parked: {row.reason}\n  Resolve that, then `perdure resume {row.id}`."
        case Status.PAUSED:
            return f"it is paused. `perdure unpause {row.id}` lets it go on."
        case Status.FAILED:
            return f"it has failed. `perdure resume {row.id}` tries again from there."
        case _:
            return f"it is {row.status}."


def _listed(locations: Sequence[str]) -> str:
    return ", ".join(repr(location) for location in locations)
