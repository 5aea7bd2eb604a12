"""A turn that does not fit where its run is changes nothing, by whatever way it comes (laws 6 and 7).

A worker that was frozen, cut off or overtaken does not know it: it sends its turn, late. Stores have several ways for
turns (one alone, many of one kind, the common kind from step to step), and each has to look for itself. So every kind
of turn is sent to a run that has moved on in every way there is, by every route; each differs in one thing only.

Over 450 lines, and still one thing: the routes, the ways to be late, and the checks that go through all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.kernel.items import read_child_item
from perdure.limits import NEVER
from perdure.store.model import CLAIMABLE, Release, Reopen, RunKey, Status
from perdure.store.protocol import Store
from perdure.store.turn import CommitResult, Committed, Created, NextGeneration, Rejected, Turn
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import (
    World,
    accept,
    completed_row,
    create,
    event,
    everything,
    failed_row,
    finishing,
    new_run,
    resumed_row,
    row_of,
    send,
    started_row,
    step_row,
    stepping,
    turn,
    watch,
    worker,
)

#: When everything is due that is not put off for ever.
DUE = 10**9
#: The others of a group: enough for a store to take a fast path with them.
COMPANIONS = 17
LATE = b'"late"'


class Place(NamedTuple):
    """Where a turn claims to belong."""

    key: RunKey
    epoch: int = 1
    generation: int = 1
    seq: int = 2
    worker: str = "w1"

    def position(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "generation": self.generation, "worker": self.worker}


class Kind(NamedTuple):
    """A kind of turn: `make` one for a place."""

    name: str
    make: Callable[[Place], Turn]
    #: What the run is, and how many records it has more, when the turn is accepted.
    status: Status = Status.RUNNING
    records: int = 1


def _with_record(place: Place) -> Turn:
    return turn(place.key, place.seq, step_row(place.seq, LATE), **place.position())


def _without_record(place: Place) -> Turn:
    return turn(place.key, place.seq, status=Status.WAITING, wake_at=77, frontier=LATE, **place.position())


def _step(place: Place) -> Turn:
    return stepping(place.key, place.seq, step_row(place.seq, LATE), **place.position())


def _end(place: Place) -> Turn:
    return finishing(place.key, place.seq, at=9_000, **place.position())


def _effect(place: Place) -> Turn:
    return turn(place.key, place.seq, send(place.seq, "bystander"), **place.position())


def _continuing(place: Place) -> Turn:
    following = NextGeneration(workflow="late", version="9", started=started_row("late", 300))
    return turn(place.key, place.seq, step_row(place.seq, LATE), continued=following, **place.position())


def _pruning(place: Place) -> Turn:
    return turn(place.key, place.seq, step_row(place.seq, LATE), pruned=[1], **place.position())


KINDS = (
    Kind("step", _step),
    Kind("record", _with_record),
    Kind("no record", _without_record, Status.WAITING, 0),
    Kind("end", _end, Status.COMPLETED),
    Kind("effect", _effect),
    Kind("continuing", _continuing),
    Kind("pruning", _pruning),
)
#: Those that can be many in a group that a store carries out at once.
PLAIN_KINDS = KINDS[:4]


# -- how a run can have moved on ---------------------------------------------------------------------------


class Past(NamedTuple):
    """Something that happened to a run: `happen` says where a turn that does not know of it believes to belong."""

    name: str
    happen: Callable[[Store, RunKey, str], Awaitable[Place]]
    #: A turn from step to step is of the first generation, by what it is.
    first_generation: bool = True


async def _claimed_by_another(store: Store, key: RunKey, run_id: str) -> Place:
    await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=5)])
    # Not a claim, which takes whatever is due: only this run. Its epoch is what `reopen` and others raise, too.
    claimed = {row.id: row for row in await store.claim("w2", 10, 1)}
    assert claimed[run_id].epoch == 2
    return Place(key, worker="w2")  # in the name of its owner, so that only the epoch tells


async def _of_another(store: Store, key: RunKey, run_id: str) -> Place:
    """A store that went back in time may give a key and an epoch a second time."""
    return Place(key, worker="w2")


async def _of_an_earlier_one(store: Store, key: RunKey, run_id: str) -> Place:
    """The same, with a name that sorts the other way."""
    return Place(key, worker="w0")


async def _not_yet_claimed(store: Store, key: RunKey, run_id: str) -> Place:
    return Place(key, epoch=2)


async def _continued(store: Store, key: RunKey, run_id: str) -> Place:
    """The earlier generation has no record where the turn writes, so that only the look at the number refuses it."""
    following = NextGeneration(workflow="order", version="1", started=started_row())
    await accept(store, turn(key, 2, step_row(2), continued=following))
    await accept(store, turn(key, 2, step_row(2), generation=2))
    return Place(key, seq=3)


async def _not_yet_continued(store: Store, key: RunKey, run_id: str) -> Place:
    return Place(key, generation=2)


async def _further(store: Store, key: RunKey, run_id: str) -> Place:
    await accept(store, turn(key, 2, step_row(2)))
    return Place(key)


async def _further_and_pruned(store: Store, key: RunKey, run_id: str) -> Place:
    """Nothing is where the turn writes, so only the look at the position can refuse it."""
    await accept(store, turn(key, 2, step_row(2), step_row(3)))
    await accept(store, turn(key, 4, step_row(4), pruned=[2, 3]))
    return Place(key)


async def _not_so_far(store: Store, key: RunKey, run_id: str) -> Place:
    return Place(key, seq=3)


async def _parked(store: Store, key: RunKey, run_id: str) -> Place:
    assert await store.park(key, 1, "why", 200)
    return Place(key)


async def _paused(store: Store, key: RunKey, run_id: str) -> Place:
    await store.pause(run_id, "why", 200)
    return Place(key)


async def _paused_in_this_epoch(store: Store, key: RunKey, run_id: str) -> Place:
    """While nobody owned it, so that nobody was told and its inbox is empty."""
    await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=NEVER)])
    await store.pause(run_id, "why", 200)
    return Place(key, epoch=(await row_of(store, run_id)).epoch)


async def _unpaused(store: Store, key: RunKey, run_id: str) -> Place:
    await store.pause(run_id, "why", 200)
    await store.unpause(run_id, 201)
    return Place(key)


async def _completed(store: Store, key: RunKey, run_id: str) -> Place:
    await accept(store, finishing(key, 2))
    return Place(key, seq=3)


async def _failed(store: Store, key: RunKey, run_id: str) -> Place:
    await accept(store, turn(key, 2, failed_row(2), status=Status.FAILED))
    return Place(key, seq=3)


async def _cancelled(store: Store, key: RunKey, run_id: str) -> Place:
    await accept(store, turn(key, 2, completed_row(2), status=Status.CANCELLED))
    return Place(key, seq=3)


async def _terminated(store: Store, key: RunKey, run_id: str) -> Place:
    await store.terminate(run_id, "why", 200)
    return Place(key)


async def _terminated_in_this_epoch(store: Store, key: RunKey, run_id: str) -> Place:
    await store.terminate(run_id, "why", 200)
    row = await row_of(store, run_id)
    return Place(key, epoch=row.epoch, seq=row.next_seq)


async def _reopened(store: Store, key: RunKey, run_id: str) -> Place:
    await _failed(store, key, run_id)
    assert await store.reopen(Reopen(key=key, epoch=1, record=resumed_row(3, 2), frontier=b"x"))
    return Place(key, seq=4)


async def _deleted(store: Store, key: RunKey, run_id: str) -> Place:
    await accept(store, finishing(key, 2))
    assert await store.delete([key]) == 1
    return Place(key, seq=3)


async def _deleted_and_started_again(store: Store, key: RunKey, run_id: str) -> Place:
    await accept(store, finishing(key, 2))
    assert await store.delete([key]) == 1
    await create(store, run_id)
    return Place(key)


async def _never_there(store: Store, key: RunKey, run_id: str) -> Place:
    return Place(key + 100_000)


PASTS = (
    Past("claimed by another", _claimed_by_another),
    Past("not yet claimed", _not_yet_claimed),
    Past("of another", _of_another),
    Past("of an earlier one", _of_an_earlier_one),
    Past("continued", _continued),
    Past("not yet continued", _not_yet_continued, first_generation=False),
    Past("further", _further),
    Past("further and pruned", _further_and_pruned),
    Past("not so far", _not_so_far),
    Past("parked", _parked),
    Past("paused", _paused),
    Past("paused in this epoch", _paused_in_this_epoch),
    Past("unpaused", _unpaused),
    Past("completed", _completed),
    Past("failed", _failed),
    Past("cancelled", _cancelled),
    Past("terminated", _terminated),
    Past("terminated in this epoch", _terminated_in_this_epoch),
    Past("reopened", _reopened),
    Past("deleted", _deleted),
    Past("deleted and started again", _deleted_and_started_again),
    Past("never there", _never_there),
)


# -- by which ways a turn can come -------------------------------------------------------------------------


class Route(NamedTuple):
    """`go` brings a turn to the store in the company of turns that fit, and answers with its result and theirs."""

    name: str
    go: Callable[[Store, Turn, Sequence[Turn]], Awaitable[tuple[CommitResult, Sequence[CommitResult]]]]
    #: What kinds the companions have, in turn; none: the turn is alone.
    company: Sequence[Kind] = ()


async def _alone(store: Store, late: Turn, others: Sequence[Turn]) -> tuple[CommitResult, Sequence[CommitResult]]:
    (result,) = await store.commit([late])
    return result, ()


async def _in_one_call(store: Store, late: Turn, others: Sequence[Turn]) -> tuple[CommitResult, Sequence[CommitResult]]:
    middle = len(others) // 2
    results = list(await store.commit([*others[:middle], late, *others[middle:]]))
    return results.pop(middle), results


async def _in_calls_of_their_own(
    store: Store, late: Turn, others: Sequence[Turn]
) -> tuple[CommitResult, Sequence[CommitResult]]:
    # With something else to do for the loop, so that a store does not carry them out one by one on the spot.
    asyncio.get_running_loop().call_soon(int)
    calls = [store.commit([each]) for each in (*others[:5], late, *others[5:])]
    results = [result for call in calls for result in await call]
    return results.pop(5), results


async def _beside_new_runs(
    store: Store, late: Turn, others: Sequence[Turn]
) -> tuple[CommitResult, Sequence[CommitResult]]:
    asyncio.get_running_loop().call_soon(int)
    first = turn(0, 2, frontier=b'{"seq":1}', worker=late.worker)
    name = f"new-{late.key}-{late.expected_seq}"
    batch = [(new_run(f"{name}-{n}", owner=late.worker), first) for n in range(COMPANIONS)]
    commit, creation = store.commit([*others, late]), store.create_all(batch)
    results, created = list(await commit), await creation
    again = [one for one in created if not isinstance(one, Created)]
    assert again in ([], list(created))  # created, or created by an earlier round of the same check
    return results.pop(), results


ROUTES = (
    Route("alone", _alone),
    Route("among steps", _in_one_call, [KINDS[0]]),
    Route("among plain turns", _in_one_call, [KINDS[1]]),
    Route("among ends", _in_one_call, [KINDS[3]]),
    Route("among all kinds", _in_one_call, KINDS),
    Route("in a call of its own", _in_calls_of_their_own, PLAIN_KINDS),
    Route("beside new runs", _beside_new_runs, [KINDS[1]]),
)


async def _companions(store: Store, route: Route, round_: str, worker: str) -> list[Turn]:
    """Turns of this worker that fit, of runs made for them."""
    if not route.company:
        return []
    first = turn(0, 2, frontier=b'{"seq":1}', at=1, worker=worker)
    made = await store.create_all([(new_run(f"{round_}-{n}", owner=worker), first) for n in range(COMPANIONS)])
    places = [Place(one.key, worker=worker) for one in made if isinstance(one, Created)]
    return [route.company[n % len(route.company)].make(place) for n, place in enumerate(places)]


async def _send_late(store: Store, route: Route, late: Turn, round_: str) -> CommitResult:
    others = await _companions(store, route, round_, late.worker)
    result, results = await route.go(store, late, others)
    assert len(results) == len(others)
    for number, (other, outcome) in enumerate(zip(others, results, strict=True)):
        assert isinstance(outcome, Committed), outcome
        assert not outcome.repeated
        row = await row_of(store, f"{round_}-{number}")
        assert (row.key, row.status) == (other.key, other.status)
        rows = await store.journal(row.key, 1, other.expected_seq - 1)
        assert list(rows) == [entry.row for entry in other.entries]
    return result


@cases([(past, route) for past in PASTS for route in ROUTES])
def check_a_late_turn_is_refused_alone(world: World, past: Past, route: Route) -> None:
    """Laws 6 and 7, FAULTS C3: it changes nothing, nothing of it reaches anybody, and its neighbours are accepted."""

    async def check(store: Store) -> None:
        await create(store, "bystander", owner="other")
        for kind in KINDS:
            if not past.first_generation and kind.name == "step":
                continue
            run_id = f"late-{kind.name}"
            late = kind.make(await past.happen(store, await create(store, run_id), run_id))
            before, sent = await _seen(store, run_id, late.key), await everything(store, "bystander")
            result = await _send_late(store, route, late, kind.name)
            assert isinstance(result, Rejected), (kind.name, result)
            assert await _seen(store, run_id, late.key) == before, kind.name
            if all(other.name != "effect" for other in route.company):
                assert await everything(store, "bystander") == sent

    world.run(check)


async def _seen(store: Store, run_id: str, key: RunKey) -> list[Any]:
    """All that a store shows of a run, by its id and by the key that it has or had."""
    found = None if await store.get(run_id) is None else await everything(store, run_id)
    return [found, *[list(await store.journal(key, generation)) for generation in (1, 2, 3)]]


@cases([(status, owned, route) for status in sorted(CLAIMABLE) for owned in (True, False) for route in ROUTES])
def check_a_turn_that_fits_is_accepted(world: World, status: Status, owned: bool, route: Route) -> None:
    """CONFORMANCE W1, FAULTS C5: whatever an open run is called at the moment, also if it was taken from its owner and
    nobody has it yet; and it is then what the turn says."""

    async def check(store: Store) -> None:
        await create(store, "bystander", owner="other")
        for kind in KINDS:
            run_id = f"fits-{kind.name}"
            key = await create(store, run_id)
            await accept(store, turn(key, 2, step_row(2), status=status, wake_at=5))
            if not owned:
                await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=NEVER)])
            one = kind.make(Place(key, seq=3))
            result = await _send_late(store, route, one, kind.name)
            assert isinstance(result, Committed), (kind.name, result)
            assert not result.repeated
            row, journals, _ = await everything(store, run_id)
            ended, continued = kind.status.terminal, one.continued is not None
            assert row.status is kind.status
            assert (row.epoch, row.generation, row.next_seq) == (1, 1 + continued, 2 if continued else 3 + kind.records)
            assert (row.owner, row.finished_at) == ((None, 9_000) if ended else ("w1" if owned else None, None))
            assert row.wake_at == one.wake_at
            assert [each for each in journals[0] if each.seq > 2] == [entry.row for entry in one.entries]

    world.run(check)


@cases([(kind, older, route) for kind in PLAIN_KINDS for older in (True, False) for route in ROUTES[:4]])
def check_a_late_turn_does_not_hit_another_run(world: World, kind: Kind, older: bool, route: Route) -> None:
    """Law 6: a run that stands where the late turn believes its own to stand is not touched by it."""

    async def check(store: Store) -> None:
        other = await create(store, "other") if older else 0
        key = await create(store, "late")
        place = (await _claimed_by_another(store, key, "late"))._replace(worker="w1")
        other = other or await create(store, "other")
        before = await _seen(store, "other", other), await _seen(store, "late", key)
        assert isinstance(await _send_late(store, route, kind.make(place), "good"), Rejected)
        assert (await _seen(store, "other", other), await _seen(store, "late", key)) == before

    world.run(check)


@cases([(route,) for route in ROUTES])
def check_the_end_of_a_run_is_told_by_any_route(world: World, route: Route) -> None:
    """CONFORMANCE E7: those who wait for it hear of it, and what it had not read is kept, also if it ends among
    others."""

    async def check(store: Store) -> None:
        await create(store, "bystander", owner="other")
        watcher = await create(store, "watcher", owner="w2")
        watched, unread = await create(store, "watched"), await create(store, "unread")
        await accept(store, turn(watcher, 2, watch(2, "watched"), worker="w2"))
        await store.append("unread", event("ping", b"1"), 9)
        for key in (watched, unread):
            assert isinstance(await _send_late(store, route, _end(Place(key)), str(key)), Committed)
        assert [read_child_item(item.data).child_id for item in await store.inbox(watcher, 9)] == ["watched"]
        assert [(letter.target, letter.type) for letter in await store.dead_letters(None, 9)] == [("unread", "ping")]
        assert await store.inbox(unread, 9) == []

    world.run(check)


@cases([(route,) for route in ROUTES])
def check_a_frontier_alone_is_no_progress_by_any_route(world: World, route: Route) -> None:
    """CONFORMANCE W4: a run whose worker dies again and again is not cleared by having been loaded, but by a record."""

    async def check(store: Store) -> None:
        await create(store, "bystander", owner="other")
        key = await create(store, "a", owner=None)
        (claimed,) = await store.claim("w1", 10, 1)
        place = Place(key, epoch=claimed.epoch)
        assert isinstance(await _send_late(store, route, _without_record(place), "first"), Committed)
        assert (await row_of(store, "a")).recoveries == claimed.recoveries
        assert isinstance(await _send_late(store, route, _with_record(place), "second"), Committed)
        assert (await row_of(store, "a")).recoveries == 0

    world.run(check)


@cases([({},), ({"waits": {"ping": 1}},)])
def check_a_run_without_an_owner_is_cleared_by_a_record_alone(world: World, more: Mapping[str, Any]) -> None:
    """CONFORMANCE W4, FAULTS C5: its worker was taken for dead, and its turns still count. Only one with a record says
    that the run does not kill."""

    async def check(store: Store) -> None:
        other = await world.connect()
        await store.register_worker(worker("w1"))
        await other.register_worker(worker("w2"))
        key = await create(store, "a", owner=None)
        (claimed,) = await store.claim("w1", 10, 1)
        await world.die(store, "w1")
        assert await other.reap("w2", 20) == 1
        place = Place(key, epoch=claimed.epoch)
        waiting = {"status": Status.RUNNING, "frontier": LATE, **place.position(), **more}
        await accept(other, turn(key, 2, **waiting))
        assert await other.claim("w2", DUE, 1, 0) == []
        assert (await row_of(other, "a")).recoveries == 1
        await accept(other, turn(key, 2, step_row(2), **waiting))
        (again,) = await other.claim("w2", DUE, 1, 0)
        assert (again.id, again.recoveries) == ("a", 1)

    world.run(check)


def check_many_new_runs_between_others(world: World) -> None:
    """CONFORMANCE L1: each gets its own first record, also where older runs left room for one in their journals."""

    async def check(store: Store) -> None:
        for run_id in ("z-before", "a-before"):
            await accept(store, turn(await create(store, run_id), 2, step_row(2), pruned=[1]))
        ended = await store.create_all([(new_run(f"gone{n}"), finishing(0, 2)) for n in range(2 * COMPANIONS)])
        assert await store.delete([one.key for one in ended if isinstance(one, Created)]) == 2 * COMPANIONS
        first = turn(0, 2, frontier=b'{"seq":1}')
        runs = [new_run(f"m{n}", at=n + 1) for n in range(COMPANIONS)]
        created = await store.create_all([(new, first) for new in runs])
        for new, one in zip(runs, created, strict=True):
            assert isinstance(one, Created)
            assert (await row_of(store, new.id)).key == one.key
            assert list(await store.journal(one.key, 1)) == [new.started]

    world.run(check)
