"""Random programs, the one workflow that runs them, and the reference model that says what they may return.

A program is a tree of nodes in plain lists. `grow` draws one, `carry_out` runs one as workflow code, and `fits` and
`errors` are the model: whether a value is one that the node may return, and the names of the errors it may raise. Where
time decides (a race, a timeout) the model allows each branch; everywhere else it allows exactly one value.

A node "wild" is a tree of `kernel.programs`, which has everything of asyncio in it; the model allows it any value.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from kernel import programs as wild
from kernel.programs import Nudge
from perdure import (
    Break,
    JoinFailed,
    Rollback,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunNotFound,
    attempt,
    continue_as,
    event,
    join,
    loop,
    now,
    publish,
    race,
    receive,
    saga,
    send,
    sleep,
    start_child,
    step,
    wait_for_run,
    workflow,
)
from perdure.authoring.registry import Registry, registry
from perdure.errors import PerdureError

Node = list[Any]

#: What a step does here: set by the world that is being simulated.
perform: Callable[[str, int, float], Awaitable[None]] | None = None


#: Called in workflow code: a moment at which something may happen to it. Set by worlds that want that.
moment: Callable[[], Awaitable[None]] | None = None


class Refused(Exception):
    """A step that is to fail."""


@event
@dataclass
class Bell:
    """Published; the first run that wants it takes it."""

    number: int


@event(consume=False)
@dataclass
class Chime:
    """Published; every run that exists then may read it once."""

    number: int


@step
async def work(uid: str, fails: int, seconds: float, kind: int) -> Any:
    """Fails as often as told, takes as long as told, and returns what `value_of` says."""
    if perform is None:
        raise AssertionError("no world is simulated")
    await perform(uid, fails, seconds)
    return value_of(uid, kind)


@step
async def tick(uid: str, number: int) -> int:
    """The simplest kind of step, of which most turns are made: one after the other, each returns a number at once."""
    if perform is None:
        raise AssertionError("no world is simulated")
    await perform(uid, 0, 0.0)
    return number


def value_of(uid: str, kind: int) -> Any:
    """Among them everything that could be mistaken for nothing."""
    return [None, False, [], 0, "", uid, {"uid": uid}][kind]


@workflow
async def sim_program(trees: list, done: list) -> Any:  # type: ignore[type-arg]
    """Each tree is a generation of the run."""
    done = [*done, await carry_out(trees[0])]
    if len(trees) > 1:
        await continue_as(sim_program(trees[1:], done))
    return done


async def carry_out(node: Node) -> Any:
    if moment is not None:
        await moment()
    kind, *rest = node
    match kind:
        case "work":
            uid, fails, attempts, seconds, value = rest
            return await work.options(max_attempts=attempts, initial_delay=0.05)(uid, fails, seconds, value)
        case "chain":
            return [await tick(rest[0], number) for number in range(rest[1])]
        case "late":
            return await work.options(max_attempts=rest[1], timeout=0.2, initial_delay=0.05)(rest[0], 0, 3.0, 0)
        case "sleep":
            before = now()
            await sleep(rest[0])
            return (now() - before).total_seconds() >= rest[0]
        case "receive":
            return await receiving(Nudge, rest[0])
        case "bell":
            return await receiving(Bell, rest[0])
        case "chime":
            return await receiving(Chime, rest[0])
        case "tell":
            try:
                await send(rest[0], Nudge(rest[1]))
            except (RunFinished, RunNotFound):
                return "refused"
            return "told"
        case "watch":
            try:
                return ["ended", await wait_for_run(rest[0])]
            except (RunNotFound, RunFailed, RunCancelled) as error:
                return type(error).__name__
        case "publish":
            await publish(Bell(rest[0]) if rest[1] else Chime(rest[0]))
            return "published"
        case "row":
            return [await carry_out(child) for child in rest[0]]
        case "gather":
            found = await asyncio.gather(*map(carry_out, rest[0]), return_exceptions=rest[1])
            return [f"!{type(one).__name__}" if isinstance(one, Exception) else one for one in found]
        case "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(carry_out(child)) for child in rest[0]]
            return [task.result() for task in tasks]
        case "race":
            winner = await race(**{f"b{n}": carry_out(child) for n, child in enumerate(rest[0])})
            return [int(winner.name[1:]), winner.value]
        case "join":
            found = await join(**{f"b{n}": carry_out(child) for n, child in enumerate(rest[0])})
            return list(found.values()) if isinstance(found, dict) else list(found)
        case "timeout":
            try:
                async with asyncio.timeout(rest[0]):
                    return await carry_out(rest[1])
            except TimeoutError:
                return "timed out"
        case "try":
            try:
                return await carry_out(rest[0])
            except Exception as error:
                return f"caught {type(error).__name__}"
            finally:
                await carry_out(rest[1])
        case "attempt":
            outcome = await attempt(carry_out(rest[0]))
            return ["ok", outcome.value] if hasattr(outcome, "value") else ["err"]
        case "saga":
            return await undoing(rest[0], rest[1], rest[2])
        case "loop":
            return await loop(lambda count: iterate(count, rest[0], rest[1]), 0, keep=rest[2])
        case "child":
            return await sim_program(rest[0], [])
        case "start":
            handle = await start_child(sim_program(rest[0], []))
            first = await carry_out(rest[1])
            return [first, await handle.result()]
        case "call-off":
            handle = await start_child(sim_program(rest[0], []))
            await carry_out(rest[1])
            handle.cancel()
            try:
                return [await handle.result()]
            except PerdureError as error:
                return type(error).__name__
        case "wild":
            return repr(await wild.interpret(rest[0]))[:200]
    raise AssertionError(kind)


async def receiving(kind: type[Any], timeout: float | None) -> Any:
    try:
        return (await receive(kind, timeout=timeout)).number
    except TimeoutError:
        return "none"


async def undoing(children: list[Node], undo: Node, rolls_back: bool) -> Any:
    try:
        async with saga() as s:
            done = [await s.do(carry_out(child), undo=lambda _: carry_out(undo)) for child in children]
            if rolls_back:
                raise Rollback("on purpose")
            return done
    except Rollback:
        return "rolled back"


async def iterate(count: int, child: Node, wanted: int) -> int | Break[int]:
    await carry_out(child)
    return Break(count + 1) if count + 1 >= wanted else count + 1


# -- the model -----------------------------------------------------------------------------------------------

ANY = "*"


def fits_program(trees: list[Node], value: Any) -> bool:
    return isinstance(value, list) and len(value) == len(trees) and all(map(fits, trees, value))


def errors_of(trees: list[Node]) -> set[str]:
    found = set().union(*map(errors, trees))
    if len(trees) > 1 and any("'saga'" in repr(tree) for tree in trees):
        found.add("BadArgument")  # `continue_as` while the saga of a loser is undone
    return found


def may_raise(node: Node, name: str) -> bool:
    return not errors(node).isdisjoint({name, ANY})


def fits(node: Node, value: Any) -> bool:
    """Whether the node may return this."""
    kind, *rest = node
    match kind:
        case "work":
            expected = value_of(rest[0], rest[4])
            return rest[1] < rest[2] and type(value) is type(expected) and value == expected
        case "chain":
            return bool(value == list(range(rest[1])))
        case "late":
            return False
        case "sleep":
            return value is True
        case "receive" | "bell" | "chime":
            return (type(value) is int) or (value == "none" and rest[0] is not None)
        case "tell":
            return value in ("told", "refused")
        case "watch":
            return value in ("RunNotFound", "RunFailed", "RunCancelled") or value[0] == "ended"
        case "publish":
            return value == "published"
        case "row" | "group" | "join":
            return _all_fit(rest[0], value)
        case "gather":
            return len(value) == len(rest[0]) and all(
                fits(c, v) or (rest[1] and str(v)[:1] == "!" and may_raise(c, v[1:]))
                for c, v in zip(rest[0], value, strict=True)
            )
        case "race":
            return isinstance(value, list) and len(value) == 2 and fits(rest[0][value[0]], value[1])
        case "timeout":
            return value == "timed out" or fits(rest[1], value)
        case "try":
            caught = value[7:] if isinstance(value, str) and value.startswith("caught ") else ""
            return fits(rest[0], value) or (bool(caught) and may_raise(rest[0], caught))
        case "attempt":
            return (value == ["err"] and bool(errors(rest[0]))) or (value[0] == "ok" and fits(rest[0], value[1]))
        case "saga":
            return value == "rolled back" if rest[2] else _all_fit(rest[0], value)
        case "loop":
            return bool(value == rest[1])
        case "child":
            return fits_program(rest[0], value)
        case "start":
            return isinstance(value, list) and fits(rest[1], value[0]) and fits_program(rest[0], value[1])
        case "call-off":
            return value in ("ChildCancelled", "ChildFailed") or fits_program(rest[0], value[0])
        case "wild":
            return isinstance(value, str)
    raise AssertionError(kind)


def _all_fit(children: list[Node], value: Any) -> bool:
    return isinstance(value, list) and len(value) == len(children) and all(map(fits, children, value))


def errors(node: Node) -> set[str]:
    """Names of the errors that the node may raise."""
    kind, *rest = node
    match kind:
        case "work":
            return {"Refused"} if rest[1] >= rest[2] else set()
        case "late":
            return {"StepTimeout"}
        case "row" | "race":
            return set().union(*map(errors, rest[0]))
        case "gather":
            return set() if rest[1] else set().union(*map(errors, rest[0]))
        case "group":
            return {"ExceptionGroup"} if any(map(errors, rest[0])) else set()
        case "join":
            return {JoinFailed.__name__} if any(map(errors, rest[0])) else set()
        case "timeout":
            return errors(rest[1])
        case "try":
            return errors(rest[1])
        case "saga":
            return set().union(*map(errors, rest[0]))
        case "loop":
            return errors(rest[0])
        case "child":
            return {"ChildFailed"} if errors_of(rest[0]) else set()
        case "start":
            return errors(rest[1]) | ({"ChildFailed"} if errors_of(rest[0]) else set())
        case "call-off":
            return errors(rest[1])
        case "wild":
            return {ANY}
    return set()


# -- growing -------------------------------------------------------------------------------------------------

LEAVES = ["work", "work", "work", "work", "sleep", "receive", "late", "bell", "chime", "tell", "publish"]
NODES = ["row", "row", "gather", "group", "race", "join", "timeout", "try", "attempt", "saga", "loop",
         "child", "start", "call-off", "wild"]  # fmt: skip


class Garden:
    """Draws programs. Each seed draws first which kinds of nodes there are: see `plan`."""

    def __init__(self, rng: random.Random, roots: list[str]) -> None:
        self._rng = rng
        self._roots = roots
        self._number = 0
        self._leaves = ["work", *(kind for kind in LEAVES if rng.random() < 0.6)]
        self._nodes = ["row", *(kind for kind in NODES if rng.random() < 0.5)]

    def number(self) -> int:
        self._number += 1
        return self._number

    def program(self) -> list[Node]:
        return [self.tree(3) for _ in range(self._rng.choice([1, 1, 1, 2, 3]))]

    def work(self, sure: bool = False) -> Node:
        rng = self._rng
        attempts = rng.choice([1, 2, 3])
        fails = 0 if sure else rng.choice([0, 0, 0, 0, 1, 1, 5])
        return ["work", f"u{self.number()}", fails, attempts, rng.choice([0, 0, 0.01, 0.3]), rng.randrange(7)]

    def tree(self, depth: int) -> Node:
        rng = self._rng
        kind = rng.choice(self._nodes if depth > 0 and rng.random() < 0.75 else self._leaves)
        seconds = rng.choice([0, 0.001, 0.1, 0.5, 2])
        match kind:
            case "work":
                return self.work()
            case "late":
                return [kind, f"u{self.number()}", rng.choice([1, 2])]
            case "sleep":
                return [kind, seconds]
            case "receive" | "bell" | "chime":
                return [kind, rng.choice([None, seconds])]
            case "tell":
                return [kind, rng.choice(self._roots), 10_000 + self.number()]
            case "publish":
                return [kind, 20_000 + self.number(), rng.random() < 0.5]
        some = [self.tree(depth - 1) for _ in range(rng.randint(1, 3))]
        match kind:
            case "gather":
                return [kind, some, rng.random() < 0.7]
            case "timeout":
                return [kind, seconds, some[0]]
            case "try":
                return [kind, ["row", some], self.work(sure=True)]
            case "attempt":
                return [kind, some[0]]
            case "saga":
                return [kind, some, self.work(sure=True), rng.random() < 0.5]
            case "loop":
                return [kind, ["row", [self.work(sure=True), some[0]]], rng.randint(1, 5), rng.randint(0, 2)]
            case "child":
                return [kind, some[:2]]
            case "start" | "call-off":
                return [kind, some[:2], self.tree(depth - 1)]
            case "wild":
                return [kind, wild.grow(rng, 2)]
        return [kind, some]


#: The definitions above, whatever registry is in use where this module is first imported.
DEFINED = Registry()
DEFINED.add_workflow(sim_program, sim_program.place)
for _event in (Nudge, Bell, Chime):
    DEFINED.add_event(_event.__perdure_event__, sim_program.place)  # type: ignore[attr-defined]


def use_definitions() -> AbstractContextManager[None]:
    """For as long as the block lasts the process knows these workflows and events, and no others."""
    return registry.replaced(DEFINED)
