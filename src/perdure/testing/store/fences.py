"""What is asked of a run by somebody who is late, or means another one, changes nothing: calls besides turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from perdure.kernel.items import read_child_item
from perdure.store.model import CLAIMABLE, Acquittal, Release, Reopen, RunKey, RunRow, Snapshot, Status
from perdure.store.protocol import Store
from perdure.store.turn import NextGeneration
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import (
    World,
    accept,
    cancel,
    commit,
    completed_row,
    create,
    event,
    everything,
    failed_row,
    finishing,
    resumed_row,
    row_of,
    started_row,
    step_row,
    turn,
    watch,
    worker,
)


@cases(["whx", "why", "whz"])
def check_only_the_same_park_is_recognised(world: World, reason: str) -> None:
    """Law 6: of a run that is parked, paused or has ended only the very call that parked it is answered with yes."""

    async def check(store: Store) -> None:
        keys = {run_id: await create(store, run_id) for run_id in ("parked", "paused", "failed", "cancelled", "other")}
        assert await store.park(keys["parked"], 1, "why", 200)
        assert await store.park(keys["other"], 1, reason, 200)
        await store.release("w1", [Release(key=keys["paused"], epoch=1, seen_item=0, ready_at=5)])
        await store.pause("paused", "why", 200)
        await accept(store, turn(keys["failed"], 2, failed_row(2), status=Status.FAILED))
        await accept(store, turn(keys["cancelled"], 2, completed_row(2), status=Status.CANCELLED))
        before = [await everything(store, run_id) for run_id in keys]
        assert await store.park(keys["parked"], 1, reason, 300) is (reason == "why")
        for run_id in ("paused", "failed", "cancelled"):
            epoch = (await row_of(store, run_id)).epoch
            assert not await store.park(keys[run_id], epoch, reason, 300), run_id
        for epoch in (0, 2):
            assert not await store.park(keys["parked"], epoch, reason, 300)
        assert [await everything(store, run_id) for run_id in keys] == before

    world.run(check)


#: What a call changes: what all runs are before it, the call, and what the one it names is called afterwards.
_CALLS: dict[str, tuple[str, Callable[[Store, RunKey, str], Awaitable[object]], Status | None]] = {
    "resume": ("parked", lambda store, key, name: store.resume(name, 300), Status.PENDING),
    "unpause": ("paused", lambda store, key, name: store.unpause(name, 300), Status.PENDING),
    "park": ("open", lambda store, key, name: store.park(key, 1, "why", 300), Status.PARKED),
    "pause": ("open", lambda store, key, name: store.pause(name, "why", 300), Status.PAUSED),
    "terminate": ("open", lambda store, key, name: store.terminate(name, "why", 300), Status.CANCELLED),
    "reopen": (
        "failed",
        lambda store, key, name: store.reopen(Reopen(key=key, epoch=1, record=resumed_row(3, 2), frontier=b"f")),
        Status.PENDING,
    ),
    "delete": ("failed", lambda store, key, name: store.delete([key]), None),
    "append": ("released", lambda store, key, name: store.append(name, event(), 9), Status.PENDING),
    "cancel": ("released", lambda store, key, name: store.request_cancel(name, cancel()), Status.PENDING),
    "release": (
        "open",
        lambda store, key, name: store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=400)]),
        Status.PENDING,
    ),
}


async def _brought_to(store: Store, key: int, name: str, state: str) -> None:
    match state:
        case "parked":
            assert await store.park(key, 1, "why", 200)
        case "paused":
            await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=10**9)])
            await store.pause(name, "why", 200)
        case "failed":
            await accept(store, turn(key, 2, failed_row(2), status=Status.FAILED))
        case "released":
            await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=10**9)])
        case _:
            pass


@cases(_CALLS)
def check_what_is_done_to_a_run_leaves_its_neighbours_alone(world: World, name: str) -> None:
    """Law 6: of runs that are all the same, the one that is named changes, and it is what the call says."""
    state, call, status = _CALLS[name]

    async def check(store: Store) -> None:
        names = ("before", "named", "later")
        keys = {each: await create(store, each) for each in names}
        for each, key in keys.items():
            await _brought_to(store, key, each, state)
        before = {each: await everything(store, each) for each in names}
        await call(store, keys["named"], "named")
        assert await everything(store, "before") == before["before"]
        assert await everything(store, "later") == before["later"]
        if status is None:
            assert await store.get("named") is None
            return
        row = await row_of(store, "named")
        assert row.status is status
        if status is Status.CANCELLED:
            assert (row.finished_at, row.owner) == (300, "w1")
        elif status is Status.PENDING:
            due = [one.id for one in await store.claim("w2", 500, 9)]
            assert due == ["named"], "and nobody else is due"

    world.run(check)


def check_a_run_that_ended_with_a_reason_is_not_taken_for_parked(world: World) -> None:
    """A run may be restored with whatever its reason was."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, failed_row(2), status=Status.FAILED))
        row = replace(await row_of(store, "a"), id="copy", reason="why")
        await store.restore(Snapshot(run=row, journals={1: await store.journal(key, 1)}))
        copy = await row_of(store, "copy")
        assert not await store.park(copy.key, copy.epoch, "why", 300)
        assert (await row_of(store, "copy")).status is Status.FAILED

    world.run(check)


def check_what_is_asked_of_a_deleted_run_does_not_reach_the_next(world: World) -> None:
    """Keys are not used again, and nobody stands in for a run that is gone."""

    async def check(store: Store) -> None:
        gone = await create(store, "gone")
        for run_id in ("next", "last"):
            assert await store.park(await create(store, run_id), 1, "why", 200)
        await accept(store, finishing(gone, 2))
        assert await store.delete([gone]) == 1
        before = [await everything(store, run_id) for run_id in ("next", "last")]
        assert not await store.park(gone, 1, "why", 300)
        rejected = await commit(store, turn(gone, 2, step_row(2)))
        assert rejected == await commit(store, turn(gone + 1_000, 2, step_row(2))), "both say that there is no such run"
        assert [await everything(store, run_id) for run_id in ("next", "last")] == before

    world.run(check)


def check_the_end_that_is_told_is_of_the_last_generation(world: World) -> None:
    """Also if an earlier one has more records."""

    async def check(store: Store) -> None:
        key, watcher = await create(store, "a"), await create(store, "watcher")
        following = NextGeneration(workflow="order", version="1", started=started_row())
        await accept(store, turn(key, 2, *[step_row(seq) for seq in (2, 3, 4)], continued=following))
        await accept(store, turn(key, 2, failed_row(2), generation=2, status=Status.FAILED))
        await accept(store, turn(watcher, 2, watch(2, "a")))
        (told,) = await store.inbox(watcher, 9)
        assert read_child_item(told.data).error is not None

    world.run(check)


@cases([(owner, epoch) for owner in ("w1", "w2", "v9", "x0") for epoch in (0, 1, 2)])
def check_only_its_owner_gives_a_run_back(world: World, owner: str, epoch: int) -> None:
    """Law 6: in the epoch in which it has it; whatever the others are called, and whichever worker releases
    something."""

    async def check(store: Store) -> None:
        for name in ("w1", "w2"):
            await store.register_worker(worker(name))
        keys = [await create(store, run_id, owner="w1") for run_id in ("before", "a", "after")]
        await create(store, "others", owner="w2")
        paused = await create(store, "paused", owner="w1")
        await create(store, "paused too", owner="w1")
        for run_id in ("paused", "paused too"):
            await store.pause(run_id, "why", 200)
        untouched = ("before", "after", "others", "paused too")
        before = [await everything(store, run_id) for run_id in untouched]
        given = [Release(key=key, epoch=epoch, seen_item=0, ready_at=7) for key in (keys[1], paused)]
        await store.release(owner, given)
        row, held = await row_of(store, "a"), await row_of(store, "paused")
        assert row.owner == (None if (owner, epoch) == ("w1", 1) else "w1")
        assert held.owner == (None if owner == "w1" else "w1"), "it was paused: whatever the epoch, its owner lets go"
        assert held.status is Status.PAUSED
        assert [await everything(store, run_id) for run_id in untouched] == before
        expected = {keys[0], keys[2]} | ({keys[1]} if row.owner else set())
        assert set(await store.held("w1")) == expected

    world.run(check)


#: The worker that takes runs and dies: nobody has registered it.
_GHOST = "ghost"
#: When the runs of the following check are due.
DUE = 1_000


async def abandoned(
    store: Store, run_id: str, deaths: int, status: Status = Status.PENDING, due: int = DUE, workflow: str = "order"
) -> RunRow:
    """A run that nobody owns, whose worker died with it so often. A frontier alone is no progress."""
    key = await create(store, run_id, owner=None if deaths else "w1", workflow=workflow)
    if not deaths:
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=due)])
    for death in range(deaths):
        (claimed,) = await store.claim(_GHOST, 10, 100, 100)
        wake_at = due if death == deaths - 1 else 5
        await accept(store, turn(key, 2, epoch=claimed.epoch, status=Status.WAITING, wake_at=wake_at, worker=_GHOST))
        assert await store.reap("w1", 10) == 1
    row = await row_of(store, run_id)
    if status is not row.status:  # by a late turn, in an epoch that is still its own
        await accept(store, turn(key, 2, epoch=row.epoch, status=status, wake_at=row.wake_at))
    return await row_of(store, run_id)


#: What keeps a run from being claimed.
NOT_CLAIMABLE = ("parked", "paused", "completed", "failed", "terminated", "later", "owned")


async def not_claimable(store: Store, deaths: int, what: str) -> str:
    """A run that no claim may take, whatever became of its workers; its id."""
    run_id = f"{what}-{deaths}"
    if what == "owned":
        await create(store, run_id, owner=None if deaths else "w2")
        assert len(await store.claim("w2", 10, 1)) == int(deaths > 0)  # which counts as one
        return run_id
    row = await abandoned(store, run_id, deaths, due=DUE + int(what == "later"))
    match what:
        case "parked":
            assert await store.park(row.key, row.epoch, "why", 200)
        case "paused":
            await store.pause(run_id, "why", 200)
        case "completed":
            await accept(store, finishing(row.key, 2, epoch=row.epoch))
        case "failed":
            await accept(store, turn(row.key, 2, failed_row(2), epoch=row.epoch, status=Status.FAILED))
        case "terminated":
            await store.terminate(run_id, "why", 200)
        case _:
            pass
    return run_id


@cases([(status, trusted, known) for status in sorted(CLAIMABLE) for trusted in (0, 1) for known in (True, False)])
def check_a_claim_takes_what_is_due_and_nothing_else(world: World, status: Status, trusted: int, known: bool) -> None:
    """CONFORMANCE W4: whatever can be claimed, whichever worker died with it; of suspects so many besides, the worst
    first."""

    async def check(store: Store) -> None:
        for name in ("w1", "w2"):
            await store.register_worker(worker(name))
        blocked = [await not_claimable(store, deaths, what) for deaths in (1, 0) for what in NOT_CLAIMABLE]
        left = {
            f"{workflow}-{deaths}": (await abandoned(store, f"{workflow}-{deaths}", deaths, status, workflow=workflow))
            for deaths in (3, 2, 1, 0)
            for workflow in ("order", "other")
        }
        before = [await everything(store, run_id) for run_id in blocked]
        unknown = () if known else [("other", "1")]
        assert await store.claim("w1", DUE - 1, 100, 100, unknown, trusted) == []
        if not known:
            left = {run_id: row for run_id, row in left.items() if row.workflow == "order"}
        for limit, suspects_max in ((0, 1), (1, 0), (100, 0), (0, 100)):
            usual = [row for row in left.values() if row.recoveries <= trusted]
            suspects = [row for row in left.values() if row.recoveries > trusted]
            worst = sorted(suspects, key=lambda row: -row.recoveries)[:suspects_max]
            claimed = await store.claim("w1", DUE, limit, suspects_max, unknown, trusted)
            wanted = [row.recoveries + 1 for row in (*usual[:limit], *worst)]
            assert sorted(row.recoveries for row in claimed) == sorted(wanted)
            for row in claimed:
                was = left.pop(row.id)
                assert (row.owner, row.epoch, row.recoveries) == ("w1", was.epoch + 1, was.recoveries + 1)
                assert row.status is (Status.RUNNING if was.status is Status.PENDING else was.status)
        assert not left
        assert await store.claim("w1", DUE, 100, 100, unknown, trusted) == []
        assert [await everything(store, run_id) for run_id in blocked] == before

    world.run(check)


def check_only_the_failed_run_itself_is_reopened(world: World) -> None:
    """Law 6: not another one that stands where it does, and not if it stands elsewhere."""

    async def check(store: Store) -> None:
        keys = [await create(store, run_id) for run_id in ("before", "a", "after")]
        for key in keys:
            await accept(store, turn(key, 2, failed_row(2), status=Status.FAILED))
        before = [await everything(store, run_id) for run_id in ("before", "a", "after")]
        for epoch, seq in ((0, 3), (2, 3), (1, 2), (1, 4)):
            assert not await store.reopen(Reopen(key=keys[1], epoch=epoch, record=resumed_row(seq, 2), frontier=b"x"))
        assert [await everything(store, run_id) for run_id in ("before", "a", "after")] == before
        assert await store.reopen(Reopen(key=keys[1], epoch=1, record=resumed_row(3, 2), frontier=b"x"))
        assert [await everything(store, run_id) for run_id in ("before", "after")] == [before[0], before[2]]

    world.run(check)


def check_only_the_run_itself_is_acquitted(world: World) -> None:
    """CONFORMANCE W4: by its owner, in the epoch in which it has it; the others that died with theirs stay suspects."""

    async def check(store: Store) -> None:
        await store.register_worker(worker("w1"))
        names = ("before", "a", "after")
        for run_id in names:
            await abandoned(store, run_id, 2)
        claimed = {row.id: row for row in await store.claim("w1", DUE, 100, 100)}
        key, epoch = claimed["a"].key, claimed["a"].epoch
        for owner, at in (("w1", epoch - 1), ("w1", epoch + 1), ("v9", epoch), ("w2", epoch)):
            await store.acquit(owner, [Acquittal(key, at, 0)])
        assert [(await row_of(store, run_id)).recoveries for run_id in names] == [3, 3, 3]
        await store.acquit("w1", [Acquittal(key, epoch, 1)])
        assert [(await row_of(store, run_id)).recoveries for run_id in names] == [3, 1, 3]

    world.run(check)


def check_a_worker_that_lost_its_place_is_not_reaped_by_itself(world: World) -> None:
    """Those that are not registered count as dead, whatever they are called; not the one that asks."""

    async def check(store: Store) -> None:
        for owner in ("a0", "w1", "x9"):
            await create(store, f"of {owner}", owner=owner)
        assert await store.reap("w1", 10) == 2
        assert [(await row_of(store, f"of {owner}")).owner for owner in ("a0", "w1", "x9")] == [None, "w1", None]

    world.run(check)
