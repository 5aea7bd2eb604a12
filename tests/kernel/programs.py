"""Random programs: trees of steps, sleeps, events, gathers, groups, timeouts, cleanups, races, joins, sagas and durable
loops, run by one workflow.

`explore(seed)` makes a program, answers what it waits for in random order, and rebuilds the run from its journal
after every single record. It asserts that nothing diverges, that the rebuilt run does what one does that was never
interrupted, and returns a digest of the journal.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel.kernel_kit import Drive, steps_asked, stored, waiting_for, without_lines, without_places
from perdure import (
    Break,
    Rollback,
    attempt,
    event,
    join,
    loop,
    race,
    receive,
    saga,
    sleep,
    state,
    status,
    step,
    traverse,
    uuid4,
    workflow,
)
from perdure.kernel import journal
from perdure.kernel.ending import GRACE_LOCATION
from perdure.kernel.frontier import Frontier, decode_frontier
from perdure.kernel.journal import Record, to_row
from perdure.kernel.operations.step import StepDone, StepFailed, StepOperation
from perdure.kernel.operations.timer import TimerOperation
from perdure.kernel.outcomes import Complete, EndCancelled, Fail
from perdure.kernel.run import Run
from perdure.types import Invocation

Tree = list[Any]


@event
@dataclass
class Nudge:
    number: int


class Refused(Exception):
    pass


#: What a step does where steps are run: in the simulator.
perform: Callable[[str, bool], Awaitable[str]] | None = None


@step
async def act(name: str, fails: bool) -> str:
    if perform is None:
        raise AssertionError("nobody runs steps here")
    return await perform(name, fails)


async def interpret(tree: Tree) -> Any:
    """Run one node of a program."""
    kind, *rest = tree
    match kind:
        case "act":
            return await act(rest[0], rest[1])
        case "set":
            # Sets are ordered by hash: a replay that leaves iterations out must give its tasks the same ones.
            tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(9)]
            order = [tasks.index(task) for task in set(tasks)]
            return await act.options(name=f"set-{order[0]}-{order[-1]}")("set", False)
        case "sleep":
            return await sleep(rest[0])
        case "plain-sleep":
            return await asyncio.sleep(rest[0])
        case "receive":
            return (await receive(Nudge, timeout=rest[0])).number
        case "row":
            return [await interpret(child) for child in rest[0]]
        case "gather":
            return [repr(one) for one in await asyncio.gather(*map(interpret, rest[0]), return_exceptions=rest[1])]
        case "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(interpret(child)) for child in rest[0]]
            return [repr(task.result()) for task in tasks]
        case "first":
            tasks = [asyncio.create_task(interpret(child)) for child in rest[0]]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            return [repr(task.exception() or task.result()) for task in done if not task.cancelled()]
        case "as-completed":
            return [repr(await one) for one in asyncio.as_completed([interpret(c) for c in rest[0]])]
        case "timeout":
            async with asyncio.timeout(rest[0]):
                return await interpret(rest[1])
        case "wait-for":
            return await asyncio.wait_for(interpret(rest[1]), rest[0])
        case "try":
            try:
                return await interpret(rest[0])
            except Exception as error:
                return f"caught {type(error).__name__}"
            finally:
                await interpret(rest[1])
        case "background":
            task = asyncio.create_task(interpret(rest[0]))
            result = await interpret(rest[1])
            return [result, repr(await task)] if rest[2] else result
        case "shield":
            return await asyncio.shield(interpret(rest[0]))
        case "locked":
            lock = asyncio.Lock()

            async def guarded(child: Tree) -> str:
                async with lock:
                    return repr(await interpret(child))

            return await asyncio.gather(*map(guarded, rest[0]))
        case "race":
            names = [f"b{number}" for number in range(len(rest[0]))]
            branches = {name: interpret(child) for name, child in zip(names, rest[0], strict=True)}
            return repr(await race(first=rest[1], **branches))
        case "join":
            branches = {f"b{number}": interpret(child) for number, child in enumerate(rest[0])}
            return repr(await join(settle=rest[1], **branches))
        case "attempt":
            return repr(await attempt(interpret(rest[0])))
        case "traverse":
            return [repr(one) for one in await traverse(rest[0], interpret, limit=rest[1])]
        case "saga":
            return await undoable(rest[0], rest[1])
        case "loop":
            return await loop(lambda so_far: iterate(so_far, rest), [], keep=rest[2], commit_every=rest[3])
    raise AssertionError(kind)


async def iterate(so_far: list[str], rest: Tree) -> list[str] | Break[list[str]]:
    """One iteration: what it draws, shows and waits for must not depend on those before it being repeated."""
    child, count = rest[0], rest[1]
    drawn = str(uuid4())[:4]
    state["drawn"] = status(drawn) or drawn
    if rest[4]:  # left behind when the iteration ends
        asyncio.create_task(interpret(child))  # noqa: RUF006
    try:
        result = repr(await interpret(child))
    except Exception as error:
        result = f"caught {type(error).__name__}"
    following = [*so_far[-2:], f"{drawn} {result[:40]}"]
    return Break(following) if len(so_far) >= 2 and int(drawn, 16) % count == 0 else following


async def undoable(children: list[Tree], ending: str) -> Any:
    try:
        async with saga() as s:
            done = [
                await s.do(interpret(child), undo=lambda output: act(f"undo {str(output)[:10]}", False))
                for child in children
            ]
            if ending == "rollback":
                raise Rollback("on purpose")
            return done
    except Rollback:
        return "rolled back"


@workflow
async def random_program(tree: list) -> Any:  # type: ignore[type-arg]
    return await interpret(tree)


# -- making programs -----------------------------------------------------------------------------------------

LEAVES = ["act", "act", "act", "sleep", "plain-sleep", "receive", "set"]
NODES = [
    "row", "gather", "group", "first", "as-completed", "timeout", "wait-for", "try", "background", "shield", "locked",
    "race", "join", "attempt", "traverse", "saga", "loop", "loop",
]  # fmt: skip


def grow(rng: random.Random, depth: int) -> Tree:
    kind = rng.choice(NODES if depth > 0 and rng.random() < 0.7 else LEAVES)
    some = [grow(rng, depth - 1) for _ in range(rng.randint(1, 3))] if kind in NODES else []
    seconds = rng.choice([0, 0.001, 0.5, 3])
    match kind:
        case "act":
            return [kind, rng.choice("abc"), rng.random() < 0.2]
        case "sleep" | "plain-sleep":
            return [kind, seconds]
        case "set":
            return [kind]
        case "receive":
            return [kind, rng.choice([None, seconds])]
        case "gather":
            return [kind, some, rng.random() < 0.5]
        case "timeout" | "wait-for":
            return [kind, seconds, ["row", some]]
        case "try":
            return [kind, ["row", some], grow(rng, depth - 1)]
        case "background":
            return [kind, some[0], some[-1], rng.random() < 0.7]
        case "shield" | "attempt":
            return [kind, some[0]]
        case "race":
            return [kind, some, rng.choice(["settled", "success"])]
        case "join":
            return [kind, some, rng.random() < 0.5]
        case "traverse":
            return [kind, some, rng.randint(1, 2)]
        case "saga":
            return [kind, some, rng.choice(["well", "rollback"])]
        case "loop":
            body = ["row", [["act", "loop", False], some[0]]]  # something to wait for: a loop over nothing never ends
            return [kind, body, rng.randint(1, 4), rng.randint(0, 2), rng.randint(1, 3), rng.random() < 0.2]
    return [kind, some]


# -- running them --------------------------------------------------------------------------------------------

RECORDS_MAX = 60


def _answer(drive: Drive, rng: random.Random) -> None:
    """Settle one thing the run waits for, chosen at random; timers only in the order of their deadlines."""
    timers = [o for o in drive.run.pending if isinstance(o, TimerOperation)]
    first = min(timers, key=lambda timer: (timer.at, timer.number), default=None)
    others = [o for o in drive.run.pending if not isinstance(o, TimerOperation)]
    choices = sorted(others + ([first] if first is not None else []), key=lambda o: o.location)
    if not drive.run.cancel_requested and rng.random() < 0.02:
        drive.deliver("", journal.CancelRequested("enough", drive.now + 60_000_000))
        return
    chosen = rng.choice(choices)
    match chosen:
        case StepOperation() if chosen.args[1] and chosen.attempts:
            drive.fail(chosen.location, Refused(chosen.location))
        case StepOperation() if chosen.args[1] or (not chosen.attempts and rng.random() < 0.1):
            drive.retry(chosen.location, Refused(chosen.location))
        case StepOperation():
            drive.finish(chosen.location, f"{chosen.args[0]} at {len(drive.records)}")
        case TimerOperation():
            drive.fire(chosen.location)
        case _:
            drive.receive(chosen.location, Nudge(len(drive.records)))


def _shape(frontier: Frontier) -> Frontier:
    """Without how far it got: a rebuilt run has passed the states of loops too, which the first one wrote."""
    return msgspec.structs.replace(frontier, seq=0)


def _saves(run: Run, written: list[Record]) -> list[Record]:
    """The states of loops that this run would write, in the place of those that another one wrote."""
    if run.loops is None or run.outcome is not None:
        return []
    saves = run.loops.take_saves()
    for record in written:
        run.loops.note_state(record.seq, record.location)
    run.loops.take_prunable(record.seq if written else 0)
    return [Record(r.seq, r.at, *save) for r, save in zip(written, saves, strict=True)]


#: Errors that random programs may end with: a step refuses, a timeout, and both inside the verbs that gather.
_ENDS = ("ExceptionGroup", "JoinFailed", "RaceFailed", "Refused", "TimeoutError")


def _is_an_end(outcome: Any) -> bool:
    """Whether a program ended as one may: that two of them end alike says nothing if something else failed both."""
    if isinstance(outcome, Fail):
        return outcome.error.type.rpartition(":")[2] in _ENDS
    return outcome is None or isinstance(outcome, (Complete, EndCancelled))


def explore(seed: int) -> str:
    """Run the program of this seed, rebuilding the run after every record; a digest of its journal."""
    rng = random.Random(seed)
    return rebuild_always(rng, random_program(grow(rng, 3)), seed)


def rebuild_always(rng: random.Random, invocation: Invocation[Any], seed: int) -> str:
    """The same for any workflow whose steps are `act`."""
    with Drive(invocation, seed=seed) as drive:
        recorded: set[str] = set()
        straight = drive.run  # never interrupted: gets what the rebuilt ones got
        while drive.run.outcome is None and len(drive.records) < RECORDS_MAX:
            asked_before, first = len(drive.commands), drive.next_seq
            _answer(drive, rng)
            answer, *saved = (record for record in drive.records if record.seq >= first)
            if isinstance(answer.body, (StepDone, StepFailed)):
                recorded.add(answer.location)
            if straight is not drive.run:
                straight.deliver(answer)
                assert _saves(straight, saved) == saved
            assert _shape(decode_frontier(straight.frontier())) == _shape(decode_frontier(drive.run.frontier()))
            assert straight.outcome == drive.run.outcome
            assert (straight.custom_status, straight.state) == (drive.run.custom_status, drive.run.state)
            again = recorded & set(steps_asked(drive.commands[asked_before:]))
            assert not again, f"asked for again after their outcome was recorded: {again}"
            frontier = drive.frontier()
            for given in (None, frontier):
                rebuilt, commands = drive.rebuilt(frontier=given)
                assert _shape(decode_frontier(rebuilt.frontier())) == _shape(frontier)
                assert waiting_for(rebuilt) == drive.pending()
                assert rebuilt.outcome == drive.run.outcome
                if rebuilt.outcome is None:
                    pending = {o.location for o in rebuilt.pending if isinstance(o, StepOperation)}
                    assert set(steps_asked(commands)) == pending
                    assert len(steps_asked(commands)) == len(pending)
            if drive.run is not straight:
                drive.run.close()
            drive.run = rebuilt  # go on from the rebuilt run: the journal is all there is
            assert GRACE_LOCATION not in recorded
        lines = [repr(without_places(to_row(record))) for record in stored(drive.records)]
        lines += [repr(without_lines(drive.run.frontier())), repr(waiting_for(drive.run))]
        outcome = drive.run.outcome
        assert _is_an_end(outcome), f"ended by something that no program does: {outcome}"
        lines.append(type(outcome).__name__)
        if outcome is not None and hasattr(outcome, "value"):
            lines.append(bytes(outcome.value).decode())
            lines += outcome.abandoned
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_of_many(first: str, last: str) -> None:
    """For a process of its own: one digest over many programs."""
    digest = hashlib.sha256()
    for seed in range(int(first), int(last)):
        digest.update(explore(seed).encode())
    print(digest.hexdigest(), flush=True)
    sys.stdout.flush()
