"""Listing, filtering and paging stay correct while runs start, move, end, are paused, resumed and deleted (CONFORMANCE
L5)."""

from __future__ import annotations

import asyncio
import random

from perdure.store.model import RunFilter, RunKey, RunRow, Status
from perdure.store.protocol import Store
from perdure.testing.store.kit import World, accept, create, finishing, step_row, turn

RUNS = 120


async def paged(store: Store, where: RunFilter, size: int) -> list[RunRow]:
    """All pages, with a moment for others after each."""
    found: list[RunRow] = []
    before: RunKey | None = None
    while page := await store.list_runs(where, size, before):
        found += page
        before = page[-1].key
        await asyncio.sleep(0)
    return found


async def churn(store: Store, rng: random.Random, stop: asyncio.Event) -> None:
    """Everything that can happen to the runs called `busy-...`, again and again."""
    number = 0
    while not stop.is_set():
        number += 1
        run_id = f"busy-{number}"
        key = await create(store, run_id)
        await accept(store, turn(key, 2, step_row(2)))
        match rng.randrange(5):
            case 0:
                await accept(store, finishing(key, 3))
            case 1:
                await store.pause(run_id, "", 5)
            case 2:
                await store.park(key, 1, "because", 5)
                await store.resume(run_id, 6)
            case 3:
                await accept(store, finishing(key, 3, status=Status.FAILED))
                await store.delete([key])
            case _:
                await store.pause(run_id, "", 5)
                await store.unpause(run_id, 5)
        await asyncio.sleep(0)


def check_pages_are_complete_ordered_and_without_repeats_while_everything_changes(world: World) -> None:
    """CONFORMANCE L5: runs that do not change are listed exactly once by every walk; what is listed fits the filter."""

    async def check(store: Store) -> None:
        other = await world.connect()
        rng = random.Random(7)
        quiet: dict[Status, set[str]] = {Status.WAITING: set(), Status.COMPLETED: set(), Status.PAUSED: set()}
        for number in range(RUNS):
            key = await create(store, f"quiet-{number}", workflow=("ship", "bill")[number % 2])
            match number % 3:
                case 0:
                    await accept(store, turn(key, 2, step_row(2), status=Status.WAITING))
                    quiet[Status.WAITING].add(f"quiet-{number}")
                case 1:
                    await accept(store, finishing(key, 2))
                    quiet[Status.COMPLETED].add(f"quiet-{number}")
                case _:
                    await store.pause(f"quiet-{number}", "", 5)
                    quiet[Status.PAUSED].add(f"quiet-{number}")
        stop = asyncio.Event()
        churning = asyncio.ensure_future(churn(other, rng, stop))
        everyone = set[str]().union(*quiet.values())
        try:
            for size in (1, 7, 100):
                for statuses in (frozenset[Status](), frozenset({Status.PAUSED}), frozenset(quiet)):
                    for workflow in (None, "ship"):
                        where = RunFilter(statuses=statuses, workflow=workflow)
                        rows = await paged(store, where, size)
                        keys = [row.key for row in rows]
                        assert keys == sorted(set(keys), reverse=True), "newest first, none twice"
                        assert all(not statuses or row.status in statuses for row in rows)
                        assert all(workflow is None or row.workflow == workflow for row in rows)
                        wanted = set[str]().union(*(quiet[s] for s in statuses)) if statuses else everyone
                        if workflow is not None:
                            wanted = {run_id for run_id in wanted if int(run_id[6:]) % 2 == 0}
                        assert {row.id for row in rows if row.id.startswith("quiet-")} == wanted, "none is missed"
            prefixed = await paged(store, RunFilter(id_prefix="quiet-"), 11)
            assert {row.id for row in prefixed} == everyone
        finally:
            stop.set()
            await churning
        counts = await store.count_runs()
        assert sum(counts.values()) == len(await paged(store, RunFilter(), 1_000))

    world.run(check)


def check_a_page_that_begins_at_a_deleted_run_goes_on(world: World) -> None:
    """CONFORMANCE L5: the place is a number, not a row."""

    async def check(store: Store) -> None:
        for number in range(6):
            key = await create(store, f"r{number}")
            await accept(store, finishing(key, 2))
        first = await store.list_runs(RunFilter(), 3)
        await store.delete([first[-1].key])
        assert [row.id for row in await store.list_runs(RunFilter(), 3, first[-1].key)] == ["r2", "r1", "r0"]

    world.run(check)
