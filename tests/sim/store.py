"""A node's way to the shared store: every call takes time, may fail as the plan says, and is looked at afterwards."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perdure.errors import StoreUnavailable
from perdure.store.protocol import MoveStore, Store
from perdure.store.turn import Rejected, Turn
from sim.odd import again

if TYPE_CHECKING:
    from sim.late import Late
    from sim.world import Node, World

#: Every call of the protocol that can fail.
CALLS = frozenset(
    name
    for name, _ in inspect.getmembers(Store, inspect.isfunction)
    if not name.startswith("_") and name not in {"open", "close", "watch", *dir(MoveStore)}
)
#: Those that only read: the store cannot have changed.
READS = frozenset(
    {
        "held", "load", "news", "get", "list_runs", "count_runs", "journal", "inbox", "workers", "dead_workers",
        "standings", "publications", "dead_letters", "expired_events", "reply",
    }
)  # fmt: skip


class NodeStore:
    """What an engine of the simulation takes for its store."""

    def __init__(self, world: World, node: Node, store: Any) -> None:
        self._world = world
        self._node = node
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name == "departure":  # no store of these worlds departs: looking whether it does is no call that can fail
            return self._store.departure
        if name not in CALLS:
            raise AttributeError(name)
        target = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, target, args, kwargs)

        setattr(self, name, call)
        return call

    async def open(self) -> None:
        """Always there."""

    async def close(self) -> None:
        """Stays."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._world.watch(self._node, callback)

    def trusted_until(self, worker_id: str) -> float | None:
        """Others find the dead of this world by themselves."""
        return None

    async def _call(self, name: str, target: Any, args: Any, kwargs: Any) -> Any:
        world, node = self._world, self._node
        fault = world.next_call()
        kind = "" if fault is None else fault.kind
        if world.latency:
            await asyncio.sleep(world.draw_latency())
        if kind == "hang-before":
            await asyncio.sleep(fault.seconds)
        if kind in ("before", "hang-before") or (world.disk_is_full and name not in READS):
            world.note(node, f"{name} refused {kind or 'full'}")
            raise StoreUnavailable("the simulator said so, before")
        odd = world.odd.next_commit(args[0]) if name == "commit" else None
        if name == "commit" and (seconds := world.odd.stands_still):
            world.stand_still(node, seconds)
            await asyncio.sleep(0)
        if odd is not None:
            world.happened[odd[0]] += 1
            if odd[0] != "odd-after":
                world.note(node, f"{name} {odd[0]} {type(odd[1]).__name__}")
                raise again(odd[1])
        if name == "renew":
            world.renewed(node)
        try:
            result = self._commit(target, args[0]) if name == "commit" else perform(target, args, kwargs)
        except Exception as error:
            world.note(node, f"{name} {type(error).__name__}")
            raise
        if name not in READS:
            if name == "claim":
                _, at, limit, _, unknown, _ = args
                world.ledger.claimed(at, limit, result, unknown)
            elif name == "commit":
                world.ledger.committed(node.worker_id, args[0], result)
            world.ledger.look()
        world.note(node, _summary(name, args, result))
        if odd is not None:
            world.note(node, f"{name} {odd[0]} {type(odd[1]).__name__}")
            raise again(odd[1])
        if kind in ("slow", "hang-after"):
            await asyncio.sleep(fault.seconds)
        if kind in ("after", "hang-after"):
            world.note(node, f"{name} answer lost")
            raise StoreUnavailable("the simulator said so, after")
        if world.latency:
            await asyncio.sleep(world.draw_latency())
        return result

    def _commit(self, target: Any, turns: Sequence[Turn]) -> Any:
        """Before it, or in the same call, turns may come that are too late."""
        late = self._world.late.next_commit(turns)
        if late is None:
            return perform(target, (turns,), {})
        if late.is_alone:
            self._check_late(late, perform(target, (late.turns,), {}))
            return perform(target, (turns,), {})
        answers = perform(target, ([*late.turns, *turns],), {})
        self._check_late(late, answers[: len(late.turns)])
        return answers[len(late.turns) :]

    def _check_late(self, late: Late, answers: Sequence[Any]) -> None:
        world = self._world
        world.happened["late"] += 1
        world.happened[f"late {late.what}"] += 1
        world.note(None, f"late {late.what}: {_summary('commit', (late.turns,), answers)}")
        for turn, answer in zip(late.turns, answers, strict=True):
            refused = isinstance(answer, Rejected) or answer.repeated
            world.ledger.require(refused, f"I3: a turn of run {turn.key} was accepted with a wrong {late.what}")
        world.ledger.look()


def perform(target: Any, args: Any, kwargs: Any) -> Any:
    """Carry out a call of a store, none of which ever waits here."""
    called = target(*args, **kwargs)
    if isinstance(called, asyncio.Future):
        return called.result()
    try:
        called.send(None)
    except StopIteration as returned:
        return returned.value
    raise AssertionError("a call of a simulated store waits")


def _summary(name: str, args: Any, result: Any) -> str:
    if name == "commit":
        parts = [
            f"{turn.key}@{turn.epoch}+{turn.expected_seq}:{','.join(entry.row.kind for entry in turn.entries)}"
            f"={type(answer).__name__}"
            for turn, answer in zip(args[0], result, strict=True)
        ]
        return f"commit {' '.join(parts)}"
    if name == "claim":
        return f"claim {[(row.key, row.epoch) for row in result]}"
    if name == "create_all":
        return f"create_all {[new.id for new, _ in args[0]]} {[type(one).__name__ for one in result]}"
    if name in ("append", "request_cancel", "park"):
        return f"{name} {args[0]}"
    return name
