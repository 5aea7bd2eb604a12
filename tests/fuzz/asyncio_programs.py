"""Random programs over all of asyncio, the workflow that runs them, and the model that says what they return.

A program is a tree of nodes in plain lists. `grow` draws one, `carry_out` runs one. The model is Python itself: the
same code on an ordinary event loop, where steps just run (`expected`). So what a node returns must not depend on the
order in which things end: results of tasks are sorted where time decides. The order that the code saw is in the trace,
which a replay must repeat exactly.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from kernel.programs import Nudge, act
from perdure import info, receive, send, workflow

Node = list[Any]

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
#: The order in which the code of the run that is running began and ended its nodes.
trace: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("trace", default=None)

work = act.options(max_attempts=1)


def note(text: str) -> None:
    """Nothing in code that a collection finalises: it runs in the context of the host."""
    if (seen := trace.get()) is not None:
        seen.append(text)


def _is_plain() -> bool:
    """Whether this is the model: verbs of perdure are stood in for."""
    return not hasattr(asyncio.get_running_loop(), "is_of_run")


async def carry_out(node: Node) -> Any:
    kind, *rest = node
    note(f"+{kind}")
    try:
        return await NODES[kind](*rest)
    finally:
        note(f"-{kind}")


async def safely(node: Node) -> str:
    """For nodes whose tasks wait for each other: one that fails would leave the others waiting for ever."""
    try:
        return repr(await carry_out(node))
    except Exception as error:
        return f"caught {type(error).__name__}"


async def _work(name: str, fails: bool) -> Any:
    return await work(name, fails)


async def _sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


async def _row(children: list[Node]) -> list[Any]:
    return [await carry_out(child) for child in children]


async def _gather(children: list[Node], returns: bool) -> list[str]:
    return [
        type(one).__name__ if isinstance(one, BaseException) else repr(one)
        for one in await asyncio.gather(*map(carry_out, children), return_exceptions=returns)
    ]


async def _group(children: list[Node]) -> list[str] | str:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(carry_out(child)) for child in children]
        return [repr(task.result()) for task in tasks]
    except* Exception as errors:
        name = type(errors.exceptions[0]).__name__
    return f"group failed {name}"


async def _wait(children: list[Node], mode: str) -> list[str]:
    pending: Any = {asyncio.create_task(safely(child)) for child in children}
    results: list[str] = []
    while pending:
        done, pending = await asyncio.wait(pending, return_when=mode)
        note(f"done {[task.result() for task in done]}")
        results += [task.result() for task in done]
    return sorted(results)


async def _wait_for_gathers(children: list[Node]) -> list[str]:
    gathers = {asyncio.gather(safely(child), safely(child)) for child in children}
    done, _ = await asyncio.wait({*gathers, asyncio.ensure_future(safely(children[0]))})
    note(f"done {[one.result() for one in done]}")
    return sorted(repr(one.result()) for one in done)


async def _as_completed(children: list[Node]) -> list[str]:
    results = [await one for one in asyncio.as_completed([safely(child) for child in children])]
    note(f"order {results}")
    return sorted(results)


async def _in_time(child: Node, by_function: bool) -> Any:
    if by_function:
        return await asyncio.wait_for(carry_out(child), 300)
    async with asyncio.timeout(300):
        return await carry_out(child)


async def _too_late(child: Node) -> str:
    try:
        async with asyncio.timeout(0.001):
            try:
                await asyncio.Event().wait()
            finally:
                await safely(child)
    except TimeoutError:
        return "too late"
    return "in time"


async def _shield(child: Node) -> str:
    """The one who waits is cancelled, the work goes on."""
    inner = asyncio.ensure_future(safely(child))

    async def outer() -> str:
        return await asyncio.shield(inner)

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return f"{task.cancelled() or task.result() == inner.result()} {await inner}"


async def _queue(children: list[Node], size: int) -> list[str]:
    queue: asyncio.Queue[str | None] = asyncio.Queue(size)
    got: list[str] = []

    async def consume() -> None:
        while (item := await queue.get()) is not None:
            got.append(item)
            note(f"got {item}")

    async def produce(child: Node) -> None:
        await queue.put(await safely(child))

    async with asyncio.TaskGroup() as group:
        consumers = [group.create_task(consume()) for _ in range(2)]
        await asyncio.gather(*map(produce, children))
        for _ in consumers:
            await queue.put(None)
    return sorted(got)


async def _event(children: list[Node]) -> list[str]:
    event = asyncio.Event()

    async def wait(number: int) -> str:
        await event.wait()
        return f"{number} woken"

    waiters = [asyncio.create_task(wait(number)) for number in range(3)]
    results = [await safely(child) for child in children]
    event.set()
    return [*results, *await asyncio.gather(*waiters)]


async def _limited(children: list[Node], places: int) -> list[Any]:
    """A semaphore, or a lock: never more inside than may be."""
    limit = asyncio.Semaphore(places) if places > 1 else asyncio.Lock()
    inside: list[int] = [0, 0]

    async def enter(child: Node) -> str:
        async with limit:
            inside[0] += 1
            inside[1] = max(inside)
            try:
                return await safely(child)
            finally:
                inside[0] -= 1

    results = await asyncio.gather(*map(enter, children))
    return [inside[1] <= places, *results]


async def _condition(children: list[Node]) -> list[str]:
    condition = asyncio.Condition()
    items: list[str] = []

    async def take() -> str:
        async with condition:
            await condition.wait_for(lambda: bool(items))
            return items.pop()

    takers = [asyncio.create_task(take()) for _ in children]
    for child in children:
        item = await safely(child)
        async with condition:
            items.append(item)
            condition.notify_all()
    return sorted(await asyncio.gather(*takers))


async def _barrier(children: list[Node]) -> list[str]:
    barrier = asyncio.Barrier(len(children))

    async def meet(child: Node) -> str:
        result = await safely(child)
        await barrier.wait()
        return result

    return list(await asyncio.gather(*map(meet, children)))


async def _items(children: list[Node], cleanup: Node) -> AsyncIterator[str]:
    try:
        for child in children:
            yield await safely(child)
    finally:
        note(f"cleaned up {await safely(cleanup)}")


async def _generator(children: list[Node], cleanup: Node, how: str) -> list[str]:
    """Read to its end, closed early, left in the middle, or left in a cycle."""
    items: Any = _items(children, cleanup)
    if how == "all":
        return [item async for item in items]
    first = [await anext(items)]
    if how == "closed":
        await items.aclose()
    elif how == "cycle":
        first.append(repr(len([items, first])))
        items = [items]
        items.append(items)
    return first


async def _context(children: list[Node]) -> list[str]:
    async def look(child: Node, name: str) -> str:
        token = variable.set(name)
        await safely(child)
        seen = variable.get()
        variable.reset(token)
        return f"{seen} {variable.get()}"

    token = variable.set("outer")
    seen = await asyncio.gather(*(look(child, f"inner {n}") for n, child in enumerate(children)))
    variable.reset(token)
    return [*seen, variable.get()]


async def _future(child: Node, how: str) -> list[str]:
    """Made directly, without asking the loop, and set in one of many ways."""
    future: asyncio.Future[str] = asyncio.Future()
    more: list[asyncio.Future[str]] = [asyncio.Future() for _ in range(7)]
    note(f"futures {[more.index(one) for one in set(more)]}")
    loop = asyncio.get_running_loop()
    match how:
        case "soon":
            loop.call_soon(future.set_result, how)
        case "later":
            loop.call_later(0.001, future.set_result, how)
        case "cancelled":
            loop.call_later(0.001, future.set_result, "never").cancel()
            loop.call_at(loop.time() + 0.001, future.set_result, how)
        case _:
            asyncio.create_task(safely(child)).add_done_callback(lambda task: future.set_result(task.result()))
    return [await future, await safely(child)]


async def _task(child: Node, how: str) -> str:
    loop = asyncio.get_running_loop()
    made: dict[str, Callable[[Any], Any]] = {
        "Task": lambda coroutine: asyncio.Task(coroutine, name="direct"),
        "loop": loop.create_task,
        "ensure": asyncio.ensure_future,
    }
    tasks = [made[how](safely(child)) for _ in range(3)]
    note(f"tasks {[tasks.index(task) for task in asyncio.all_tasks() if task in tasks]}")
    return repr([await task for task in tasks])


async def _cancel(child: Node, cleanup: Node) -> str:
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await safely(cleanup)

    task = asyncio.create_task(wait())
    result = await safely(child)
    task.cancel("enough")
    done, _ = await asyncio.wait([task])
    return f"{result} {[one.cancelled() for one in done]}"


async def _cancel_work(child: Node) -> str:
    """Cancelled at some moment of its life, or too late."""
    task = asyncio.create_task(safely(child))
    await asyncio.sleep(0.001)
    was_asked = task.cancel()
    await asyncio.wait([task])
    note(f"cancelled {was_asked} {task.cancelled()}")
    return "ended"


async def _try(child: Node, cleanup: Node) -> Any:
    try:
        return await carry_out(child)
    except Exception as error:
        return f"caught {type(error).__name__}"
    finally:
        await safely(cleanup)


async def _forget(child: Node, other: Node) -> Any:
    asyncio.create_task(safely(child))  # noqa: RUF006
    return await carry_out(other)


async def _collect(child: Node) -> Any:
    """Garbage of its own, then a collection in the middle of the turn, and another one later."""
    left: list[Any] = [_items([child], child), asyncio.Future()]
    await anext(left[0])
    left.append(left)
    del left
    gc.collect()
    result = await carry_out(child)
    gc.collect()
    return result


async def _child(child: Node) -> Any:
    return await fuzz_child(child) if not _is_plain() else await _top(child)


async def _note(number: int) -> int:
    """An event that the run sends to itself."""
    if _is_plain():
        return number
    await send(info().id, Nudge(number))
    await receive(Nudge)
    return number


NODES: dict[str, Callable[..., Awaitable[Any]]] = {
    "act": _work, "sleep": _sleep, "row": _row, "gather": _gather, "group": _group, "wait": _wait,
    "wait-gathers": _wait_for_gathers, "as-completed": _as_completed, "in-time": _in_time, "too-late": _too_late,
    "shield": _shield, "queue": _queue, "event": _event, "limited": _limited, "condition": _condition,
    "barrier": _barrier, "generator": _generator, "context": _context, "future": _future, "task": _task,
    "cancel": _cancel, "cancel-work": _cancel_work, "try": _try, "forget": _forget, "collect": _collect,
    "child": _child, "note": _note,
}  # fmt: skip


async def _top(node: Node) -> Any:
    try:
        return await carry_out(node)
    except (Exception, asyncio.CancelledError) as error:
        # A group that fails in the cleanup of a task that a timeout has cancelled: before Python 3.13 it leaves the
        # task cancelled once more, on any loop.
        return f"failed {type(error).__name__}"


@workflow
async def fuzz_child(node: list) -> Any:  # type: ignore[type-arg]
    trace.set([])
    return await _top(node)


@workflow
async def fuzz_program(node: list) -> Any:  # type: ignore[type-arg]
    seen: list[str] = []
    trace.set(seen)
    value = await _top(node)
    return {"value": value, "trace": list(seen)}


def expected(node: Node) -> Any:
    """What the program returns on an ordinary event loop."""

    async def main() -> Any:
        trace.set([])
        async with asyncio.timeout(60):
            return await _top(node)

    return asyncio.run(main())


# -- making programs -----------------------------------------------------------------------------------------

_LEAVES = ["act", "act", "act", "act", "sleep", "note"]
_NODES = [kind for kind in NODES if kind not in _LEAVES]


def grow(rng: random.Random, depth: int) -> Node:
    kind = rng.choice(_NODES if depth > 0 and rng.random() < 0.75 else _LEAVES)
    if kind == "act":
        return [kind, rng.choice("abc"), rng.random() < 0.2]
    if kind == "sleep":
        return [kind, rng.choice([0, 0, 0.001, 0.003])]
    if kind == "note":
        return [kind, rng.randint(1, 9)]
    some = [grow(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    match kind:
        case "gather":
            return [kind, some, rng.random() < 0.5]
        case "wait":
            mode = rng.choice([asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION, asyncio.ALL_COMPLETED])
            return [kind, some, mode]
        case "in-time":
            return [kind, some[0], rng.random() < 0.5]
        case "too-late" | "shield" | "cancel-work" | "collect" | "child":
            return [kind, some[0]]
        case "queue" | "limited":
            return [kind, some, rng.randint(1, 2)]
        case "generator":
            return [kind, some, grow(rng, 0), rng.choice(["all", "closed", "left", "cycle"])]
        case "future":
            return [kind, some[0], rng.choice(["soon", "later", "cancelled", "task"])]
        case "task":
            return [kind, some[0], rng.choice(["Task", "loop", "ensure"])]
        case "cancel" | "try" | "forget":
            return [kind, some[0], some[-1]]
    return [kind, some]
