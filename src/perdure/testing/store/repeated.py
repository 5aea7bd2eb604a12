"""Law 6: every call may be repeated after `StoreUnavailable`. The dangerous fault is "raised an error but did commit".

Each call is made three times over: once as it should go; with an error before anything happened, then again; with an
error after it happened, then again. What is stored must be the same, and the answer as good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from perdure.errors import DeadLetterNotFound, StoreUnavailable
from perdure.kernel.items import ChildNotice, child_item
from perdure.store.model import Acquittal, ParentLink, Release, Reopen, RunFilter, RunKey, Snapshot, Status
from perdure.store.move import Packed, Remainder
from perdure.store.protocol import Store
from perdure.store.turn import Committed, Created, DeadItem, Existing, NextGeneration
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import (
    SHARED,
    World,
    accept,
    cancel,
    completed_row,
    create,
    event,
    everything,
    failed_row,
    finishing,
    new_run,
    publish,
    published,
    reply,
    resumed_row,
    send,
    spawn,
    started_row,
    step_row,
    turn,
    watch,
    without_leases,
    worker,
)
from perdure.testing.wrappers import FaultyStore


class Scene(NamedTuple):
    """A store prepared the same way every time, by key."""

    store: Store
    a: RunKey
    b: RunKey
    item: int
    #: A run that has failed, one that has ended with an unread event (its letter), one that waits for published ones
    #: and holds a single one (the item).
    failed: RunKey
    ended: RunKey
    letter: int
    waits: RunKey
    held: int


async def _prepare(store: Store) -> Scene:
    """Two runs of worker w1 (the second a child of the first), one of w2, one unowned, one parked, one ended."""
    for name in ("w1", "w2"):
        await store.register_worker(worker(name))
    a = await create(store, "a")
    b = await create(store, "b", parent=ParentLink(key=a, generation=1, location="child"))
    await create(store, "c", owner="w2")
    await create(store, "free", owner=None)
    await store.park(await create(store, "parked"), 1, "diverged", 5)
    await accept(store, finishing(await create(store, "ended"), 2))
    await create(store, "orphan", owner="ghost")
    delivery = (await store.append("a", event(data=b"1"), 9)).delivery
    assert delivery is not None
    failed = await create(store, "failed")
    await store.append("failed", event("unread"), 9)
    await accept(store, turn(failed, 2, failed_row(2), status=Status.FAILED))
    ended = await create(store, "left")
    await store.append("left", event("pong"), 9)
    await accept(store, finishing(ended, 2))
    (letter,) = await store.dead_letters("pong", 9)
    waits = await create(store, "waits")
    await accept(store, turn(waits, 2, status=Status.WAITING, waits={"single": 1, "shared": 1}))
    await create(store, "paused", owner=None)
    await store.pause("paused", "by ann", 60)
    await store.publish(published("single", at=60), 9)
    await store.publish(published("single", at=61, expires=5), 9)
    (held,) = await store.inbox(waits, 9)
    return Scene(store, a, b, delivery.item.id, failed, ended, letter.id, waits, held.id)


async def _snapshot(store: Store) -> dict[str, Any]:
    runs = await store.list_runs(RunFilter(), 100)
    return {
        **{row.id: await everything(store, row.id) for row in runs},
        "workers": sorted(info.id for info in await store.workers()),
        "standings": without_leases(await store.standings()),
        "held": {name: dict(await store.held(name)) for name in ("w1", "w2", "ghost")},
        "counts": dict(await store.count_runs()),
        "publications": list(await store.publications(None, 100)),
        "dead_letters": list(await store.dead_letters(None, 100)),
        "expired": dict(await store.expired_events()),
        "reply": await store.reply("asked"),
    }


class CallCase(NamedTuple):
    """One call on a prepared store."""

    name: str
    method: str
    act: Callable[[Store, Scene], Awaitable[Any]]
    same: Callable[[Any], Any] = lambda answer: None


def _commit(name: str, *turns: Callable[[Scene], Any]) -> CallCase:
    async def act(store: Store, scene: Scene) -> Any:
        return await store.commit([make(scene) for make in turns])

    def same(answer: Any) -> Any:
        assert all(isinstance(result, Committed) for result in answer), answer
        return [(list(result.effects), dict(result.spawned)) for result in answer]

    return CallCase(f"commit {name}", "commit", act, same)


def _continued(scene: Scene) -> Any:
    following = NextGeneration(workflow="order", version="2", started=started_row())
    return turn(scene.a, 2, completed_row(2), continued=following)


def _notice(scene: Scene) -> Any:
    return finishing(scene.b, 2, notice=child_item(ChildNotice("b", 1, "child", cancelled="x"), 60))


def _sending(scene: Scene) -> Any:
    return turn(scene.a, 2, send(2, "c"), send(3, "nobody"), send(4, "ended"), send(5, "a"))


def _spawning(scene: Scene) -> Any:
    link = ParentLink(key=scene.a, generation=1, location="kid")
    return turn(scene.a, 2, spawn(2, new_run("kid", parent=link)), spawn(3, new_run("c")))


def _publishing(scene: Scene) -> Any:
    return turn(scene.a, 2, publish(2, published("single", at=70)), publish(3, published("shared", SHARED, 70)))


def _letting_go(scene: Scene) -> Any:
    return turn(scene.waits, 2, step_row(2), returned=[scene.held], waits={"shared": 1})


def _restored(store: Store, scene: Scene) -> Awaitable[Any]:
    async def restore() -> Any:
        (loaded,) = await store.load([scene.a])
        row = msgspec.structs.replace(loaded.run, id="copy")
        return await store.restore(Snapshot(run=row, journals={1: loaded.rows}, inbox=[event(dedup="k")]))

    return restore()


async def _depart(store: Store) -> int:
    return (await store.depart("sqlite:///b.db", "b", 70)).at


async def _staying(store: Store, _: Scene) -> Any:
    row = await store.get("free")
    if row is not None and not row.epoch:  # it has not departed before
        await _depart(store)
    return await store.stay(71)


async def _leaving(store: Store, _: Scene) -> Any:
    return await store.leave(await _depart(store))


async def _coming(store: Store, scene: Scene) -> list[Packed]:
    """Runs as they would come from another store."""
    packed = await store.pack([scene.a, scene.ended])
    return [
        msgspec.structs.replace(one, run=msgspec.structs.replace(one.run, id=f"copy of {one.run.id}")) for one in packed
    ]


async def _receiving(store: Store, scene: Scene) -> Any:
    return await store.receive("other", await _coming(store, scene))


async def _confirming(store: Store, scene: Scene) -> Any:
    if not await store.received("other", 0, 9):
        await _receiving(store, scene)
    await store.confirm("other", {"copy of a": "1"})


async def _withdrawing(store: Store, scene: Scene) -> Any:
    """A repeat after a lost answer says that there was nothing left to do."""
    if await store.get("copy of a") is None and not await store.received("other", 0, 9):
        await _receiving(store, scene)
    await store.withdraw("other", ["copy of a", "nobody"])


async def _arriving(store: Store, scene: Scene) -> Any:
    """The repeat of one that was done says False."""
    if not await store.has_arrived("other") and not await store.received("other", 0, 9):
        await _receiving(store, scene)
    (letter, *_) = await store.dead_letters(None, 1)
    await store.arrive("other", Remainder(runs=2, dead_letters=[letter], expired={"t": 2}), 72)


def _reopen(scene: Scene) -> Reopen:
    return Reopen(key=scene.failed, epoch=1, record=resumed_row(3, 2), frontier=b"f")


def _ids(answer: Any) -> Any:
    return [row.id for row in answer]


def _key(answer: Any) -> Any:
    return answer.key if isinstance(answer, Created) else answer.row.key if isinstance(answer, Existing) else answer


async def _replay(store: Store, letter: int, run_id: str | None) -> None:
    """A dead letter that is gone was replayed, or removed by somebody: a repeat of the call says so."""
    with contextlib.suppress(DeadLetterNotFound):
        await store.replay_dead_letter(letter, run_id, 70, 9)


CALLS = [
    CallCase("create", "create", lambda store, _: store.create(new_run("new", owner=None), None), _key),
    CallCase("create owned", "create", lambda store, _: store.create(new_run("new"), None), _key),
    CallCase(
        "create with a turn",
        "create",
        lambda store, _: store.create(new_run("new"), turn(0, 2, step_row(2), send(3, "c"), frontier=b"f")),
        _key,
    ),
    CallCase("create finished", "create", lambda store, _: store.create(new_run("new"), finishing(0, 2)), _key),
    CallCase(
        "create many",
        "create_all",
        lambda store, _: store.create_all([(new_run("new"), turn(0, 2)), (new_run("other"), finishing(0, 2))]),
        lambda answers: [_key(answer) for answer in answers],
    ),
    CallCase("append with a key", "append", lambda store, _: store.append("a", event(dedup="k"), 9)),
    CallCase("append to an unowned run", "append", lambda store, _: store.append("free", event(dedup="k"), 9)),
    CallCase("request_cancel", "request_cancel", lambda store, _: store.request_cancel("a", cancel())),
    CallCase("terminate", "terminate", lambda store, _: store.terminate("a", "enough", 70)),
    CallCase("terminate a child", "terminate", lambda store, _: store.terminate("b", "enough", 70)),
    CallCase("resume", "resume", lambda store, _: store.resume("parked", 70)),
    CallCase("register_worker", "register_worker", lambda store, _: store.register_worker(worker("w3"))),
    CallCase("drain_worker", "drain_worker", lambda store, _: store.drain_worker("w1", 70)),
    CallCase("unregister_worker", "unregister_worker", lambda store, _: store.unregister_worker("w1", 70)),
    CallCase("renew", "renew", lambda store, _: store.renew("w1", 70), lambda renewed: renewed.alive),
    CallCase("reap", "reap", lambda store, _: store.reap("w1", 70)),
    CallCase("claim", "claim", lambda store, _: store.claim("w1", 70, 9)),
    CallCase("held", "held", lambda store, _: store.held("w1"), dict),
    CallCase("load", "load", lambda store, scene: store.load([scene.a, scene.b]), list),
    _commit("records", lambda scene: turn(scene.a, 2, step_row(2), step_row(3), state=b"{}")),
    _commit("frontier", lambda scene: turn(scene.a, 2, status=Status.WAITING, wake_at=9, frontier=b"f")),
    _commit("consumed", lambda scene: turn(scene.a, 2, step_row(2), consumed=[scene.item])),
    _commit("the end", lambda scene: finishing(scene.a, 2)),
    _commit("notice", _notice),
    _commit("sends", _sending),
    _commit("children", _spawning),
    _commit("continued", _continued),
    _commit("publications", _publishing),
    _commit("a reply", lambda scene: turn(scene.a, 2, reply(2, "asked"), reply(3, "asked", b"2"))),
    _commit("watches", lambda scene: turn(scene.a, 2, watch(2, "c"), watch(3, "ended"), watch(4, "nobody"))),
    _commit("a single event", lambda scene: turn(scene.waits, 2, step_row(2), consumed=[scene.held], waits={})),
    _commit("a dead letter", lambda scene: turn(scene.a, 2, step_row(2), dead=[DeadItem(scene.item, "bad")])),
    _commit("waits", lambda scene: turn(scene.a, 2, step_row(2), waits={"single": 2})),
    _commit("an event handed back", _letting_go),
    _commit("pruned", lambda scene: turn(scene.a, 2, step_row(2), step_row(3), pruned=[1])),
    _commit("several", lambda scene: turn(scene.a, 2, step_row(2)), lambda scene: turn(scene.b, 2, step_row(2))),
    CallCase(
        "release",
        "release",
        lambda store, scene: store.release("w1", [Release(key=scene.a, epoch=1, seen_item=0, ready_at=90)]),
    ),
    CallCase("acquit", "acquit", lambda store, scene: store.acquit("w1", [Acquittal(scene.a, 1, 0)])),
    CallCase("park", "park", lambda store, scene: store.park(scene.a, 1, "diverged", 70), bool),
    CallCase("news", "news", lambda store, _: store.news("w1", 1), lambda news: list(news.items)),
    CallCase("get", "get", lambda store, _: store.get("a"), lambda row: row),
    CallCase("list_runs", "list_runs", lambda store, _: store.list_runs(RunFilter(), 9), _ids),
    CallCase("count_runs", "count_runs", lambda store, _: store.count_runs(), dict),
    CallCase("journal", "journal", lambda store, scene: store.journal(scene.a, 1), list),
    CallCase("inbox", "inbox", lambda store, scene: store.inbox(scene.a, 9), list),
    # An answer that got lost may have said that it was done: repeated, it says that there was nothing left to do.
    CallCase("pause", "pause", lambda store, _: store.pause("a", "by ann", 70)),
    CallCase("pause a run that holds an event", "pause", lambda store, _: store.pause("waits", "by ann", 70)),
    CallCase("unpause", "unpause", lambda store, _: store.unpause("paused", 70)),
    CallCase("reopen", "reopen", lambda store, scene: store.reopen(_reopen(scene))),
    CallCase("restore", "restore", _restored, _key),
    CallCase("delete", "delete", lambda store, scene: store.delete([scene.ended, scene.a])),
    CallCase("publish", "publish", lambda store, _: store.publish(published("single", at=70, dedup="k"), 9)),
    CallCase("publish to many", "publish", lambda store, _: store.publish(published("shared", SHARED, dedup="k"), 9)),
    CallCase("spread", "spread", lambda store, _: store.spread(70, 9, 9)),
    CallCase("reply", "reply", lambda store, _: store.reply("asked"), lambda answer: answer),
    CallCase("replay a letter", "replay_dead_letter", lambda store, scene: _replay(store, scene.letter, "a")),
    CallCase("replay a letter to all", "replay_dead_letter", lambda store, scene: _replay(store, scene.letter, None)),
    CallCase(
        "remove_dead_letters", "remove_dead_letters", lambda store, scene: store.remove_dead_letters([scene.letter])
    ),
    CallCase("tidy_events", "tidy_events", lambda store, _: store.tidy_events(70, 70, 9)),
    CallCase("publications", "publications", lambda store, _: store.publications(None, 9), list),
    CallCase("dead_letters", "dead_letters", lambda store, _: store.dead_letters(None, 9), list),
    CallCase("expired_events", "expired_events", lambda store, _: store.expired_events(), dict),
    CallCase("dead_workers", "dead_workers", lambda store, _: store.dead_workers(), lambda dead: dead),
    CallCase("standings", "standings", lambda store, _: store.standings(), without_leases),
    CallCase("identity", "identity", lambda store, _: store.identity(), lambda answer: bool(answer)),
    CallCase("departure", "departure", lambda store, _: store.departure(), lambda answer: answer),
    CallCase("depart", "depart", lambda store, _: store.depart("x", "y", 70), lambda answer: answer),
    CallCase("stay", "stay", _staying),
    CallCase("leave", "leave", _leaving, bool),
    CallCase("pack", "pack", lambda store, scene: store.pack([scene.a, scene.waits]), list),
    CallCase("remainder", "remainder", lambda store, _: store.remainder(), lambda answer: answer),
    CallCase("receive", "receive", _receiving, lambda receipt: (sorted(receipt.keys), list(receipt.taken))),
    CallCase("confirm", "confirm", _confirming),
    CallCase("received", "received", lambda store, _: store.received("other", 0, 9), list),
    CallCase("withdraw", "withdraw", _withdrawing),
    CallCase("arrive", "arrive", _arriving),
    CallCase("has_arrived", "has_arrived", lambda store, _: store.has_arrived("other"), lambda answer: answer),
    CallCase("workers", "workers", lambda store, _: store.workers(), lambda found: sorted(w.id for w in found)),
]


async def _one(world: World, case: CallCase, *, faulty: bool, after: bool) -> tuple[Any, Any]:
    store = await world.connect()
    try:
        scene = await _prepare(store)
        if faulty:
            wrapped: Any = FaultyStore(store, 1, after=after, only=case.method)
            with pytest.raises(StoreUnavailable):
                await case.act(wrapped, scene)
            answer = await case.act(wrapped, scene)
            assert wrapped.failed == [case.method]
        else:
            answer = await case.act(store, scene)
        return case.same(answer), await _snapshot(store)
    finally:
        await store.close()


def _compare(world: World, case: CallCase, after: bool) -> None:
    async def check(_: Store) -> None:
        expected = await _one(world.fresh(), case, faulty=False, after=False)
        assert await _one(world.fresh(), case, faulty=True, after=after) == expected

    world.run(check)


@cases([(case,) for case in CALLS])
def check_raised_but_committed(world: World, case: CallCase) -> None:
    """CONFORMANCE W2, FAULTS B2: repeated after it happened, the call changes nothing more and answers as well."""
    _compare(world, case, after=True)


@cases([(case,) for case in CALLS])
def check_raised_and_did_nothing(world: World, case: CallCase) -> None:
    """CONFORMANCE W2, FAULTS B1: repeated after it did not happen, the call does what it should have done."""
    _compare(world, case, after=False)


#: What asks nothing of what is stored.
_NO_CALLS = ("open", "close", "watch", "trusted_until")


def check_every_call_is_covered(world: World) -> None:
    """CONFORMANCE W2 means every call; one that is added to the protocol has to be added
    above."""
    methods = {
        name
        for name in dir(Store)
        if not name.startswith("_") and name not in _NO_CALLS and callable(getattr(Store, name))
    }
    assert methods == {case.method for case in CALLS}
