"""What a transaction locks, and in which order: docs/reference/locks.md.

Several processes change the same tables, so two transactions may want the same rows. Each locks what it knows it will
need before it does anything: types of events by name, then runs by key. So nobody waits in a circle. What is found only
later (who waits for an event, children of a run that is terminated) is locked without waiting; if somebody else has it,
the transaction is rolled back and begun again with that in its plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from perdure.store.model import NewRun, Reopen, Snapshot
from perdure.store.move import Packed, Remainder
from perdure.store.sql import dead_letters, events, inbox, moving, runs, turns, workers
from perdure.store.turn import Creation, Turn


class Plan(msgspec.Struct):
    """What a transaction will lock, as far as is known."""

    #: Runs by key, by id, with their parents, with their children.
    keys: set[int] = msgspec.field(default_factory=set[int])
    ids: set[str] = msgspec.field(default_factory=set[str])
    parents_of: set[int] = msgspec.field(default_factory=set[int])
    children_of: set[int] = msgspec.field(default_factory=set[int])
    #: Types of events to publish or to hand on; to begin to wait for; of what these runs have to do with.
    types: set[str] = msgspec.field(default_factory=set[str])
    waited: set[str] = msgspec.field(default_factory=set[str])
    types_of: set[int] = msgspec.field(default_factory=set[int])
    #: Workflows and versions that must have a number.
    definitions: set[tuple[str, str]] = msgspec.field(default_factory=set[tuple[str, str]])


class Relock(Exception):
    """Something is locked by somebody else that is not in the plan. By now it is: begin again."""


# -- what each call of the store knows beforehand ------------------------------------------------------------


def add_turn(plan: Plan, turn: Turn) -> None:
    if turn.key:
        plan.keys.add(turn.key)
    if turn.notice is not None:
        plan.parents_of.add(turn.key)
    if turn.waits is not None or turn.returned or turn.dead or turn.status.terminal:
        if turn.waits:
            plan.waited.update(turn.waits)
        plan.types_of.add(turn.key)
    if turn.continued is not None:
        plan.definitions.add((turn.continued.workflow, turn.continued.version))
    for entry in turn.entries:
        effect = entry.effect
        if effect is not None:
            if effect.run_id is not None:
                plan.ids.add(effect.run_id)
            if effect.event_type is not None:
                plan.types.add(effect.event_type)
            if effect.child is not None:
                plan.definitions.add((effect.child.workflow, effect.child.version))


def _add_new(plan: Plan, new: NewRun, turn: Turn | None) -> None:
    plan.definitions.add((new.workflow, new.version))
    if turn is not None:
        add_turn(plan, turn)


def _create(plan: Plan, new: NewRun, turn: Turn | None) -> None:
    _add_new(plan, new, turn)


def _create_all(plan: Plan, creations: Sequence[Creation]) -> None:
    for new, turn in creations:
        _add_new(plan, new, turn)


def _commit_turns(plan: Plan, many: Sequence[Turn]) -> None:
    for turn in many:
        add_turn(plan, turn)


def _one_run(plan: Plan, run_id: str, *_: Any) -> None:
    plan.ids.add(run_id)


def _reopen(plan: Plan, reopen: Reopen) -> None:
    plan.keys.add(reopen.key)
    plan.parents_of.add(reopen.key)


def _restore(plan: Plan, snapshot: Snapshot) -> None:
    plan.definitions.add((snapshot.run.workflow, snapshot.run.version))


def _delete(plan: Plan, keys: Iterable[int]) -> None:
    plan.keys.update(keys)


def _publish(plan: Plan, item: Any, *_: Any) -> None:
    plan.types.add(item.type)


def _replay(plan: Plan, letter_id: int, run_id: str | None, *_: Any) -> None:
    if run_id is not None:
        plan.ids.add(run_id)


def _park(plan: Plan, key: int, *_: Any) -> None:
    plan.keys.add(key)
    plan.types_of.add(key)


def _release(plan: Plan, worker_id: str, releases: Iterable[Any]) -> None:
    plan.keys.update(each.key for each in releases)


def _acquit(plan: Plan, worker_id: str, acquittals: Iterable[Any]) -> None:
    plan.keys.update(each.key for each in acquittals)


def _receive(plan: Plan, source: str, packed: Iterable[Packed]) -> None:
    plan.definitions.update((one.run.workflow, one.run.version) for one in packed)


def _arrive(plan: Plan, source: str, remainder: Remainder, at: int) -> None:
    plan.types.update(remainder.types)


_KNOWN: Final[dict[Callable[..., Any], Callable[..., None]]] = {
    turns.create: _create,
    turns.create_all: _create_all,
    turns.commit_turns: _commit_turns,
    inbox.append: _one_run,
    inbox.request_cancel: _one_run,
    runs.terminate: _one_run,
    runs.resume: _one_run,
    runs.pause: _one_run,
    runs.unpause: _one_run,
    runs.reopen: _reopen,
    runs.restore: _restore,
    runs.delete: _delete,
    events.publish: _publish,
    dead_letters.replay: _replay,
    workers.park: _park,
    workers.release: _release,
    workers.acquit: _acquit,
    moving.receive: _receive,
    moving.arrive: _arrive,
}


def plan_of(calls: Iterable[tuple[Callable[..., Any], Sequence[Any]]]) -> Plan:
    """What these calls of the store will lock, as far as their arguments tell."""
    plan = Plan()
    for function, arguments in calls:
        known = _KNOWN.get(function)
        if known is not None:
            known(plan, *arguments)
    return plan
