"""Workflows about which the lint has nothing to say."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import math
import os
import random
import re
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import reduce
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from perdure import Workflow, info, log, now, sleep, state, status, step, traverse, uuid4, workflow

INNOCENT: dict[str, Workflow[..., Any]] = {}
LIMIT = 3
NAMES = ["a", "b"]
TABLE = {"a": 1}
logger = logging.getLogger(__name__)


def innocent(function: Any) -> Any:
    INNOCENT[function.__name__] = workflow(function)
    return function


@dataclass
class Order:
    id: str
    items: list[str] = field(default_factory=list)


@step
def reads_a_file(path: str) -> str:
    return open(path).read() + str(time.time()) + os.environ["X"]


@workflow
async def a_child() -> None: ...


def pure(n: int) -> int:
    return n * LIMIT + len(NAMES) + TABLE["a"]


@innocent
async def clock() -> Any:
    return [time.time(), datetime.datetime.now(), time.monotonic(), datetime.date.today()]


@innocent
async def chance() -> Any:
    return [random.random(), random.choice(NAMES), uuid.uuid4(), random.Random(4).random(), os.urandom(4)]


@innocent
async def perdures_own() -> Any:
    return [now(), uuid4(), info().id]


@innocent
async def calls_a_step() -> Any:
    return await reads_a_file("x")


@innocent
async def helpers() -> Any:
    return pure(3)


@innocent
async def gathers() -> Any:
    return await asyncio.gather(reads_a_file("a"), reads_a_file("b"))


@innocent
async def sleeps() -> Any:
    await sleep(1)
    await asyncio.sleep(1)


@innocent
async def logs() -> Any:
    logger.info("hello")
    log.info("hello")
    logging.getLogger("x").warning("y")


@innocent
async def prints() -> Any:
    print("hello")


@innocent
async def dataclasses_() -> Any:
    return replace(Order("a"), items=["x"])


@innocent
async def sorted_sets() -> Any:
    return [one for one in sorted({"b", "a"})], len({1}), sum({1, 2}), max({1, 2}), any(n for n in {1, 2})  # noqa: C416


@innocent
async def membership() -> Any:
    known = {"a", "b"}
    return "a" in known, known | {"c"}


@innocent
async def set_comprehensions() -> Any:
    return {len(name) for name in NAMES}


@innocent
async def big_comprehensions() -> Any:
    return [[n * m for n in range(100)] for m in range(100)], {n: str(n) for n in range(1000)}


@innocent
async def generators() -> Any:
    return sum(n for n in range(1000))


@innocent
async def imports_inside() -> Any:
    import math as m
    from operator import add

    return m.pi, add(1, 2)


@innocent
async def texts() -> Any:
    return json.dumps({"a": 1}), re.sub("a", "b", "a"), "a".upper(), f"{LIMIT:>3}"


@innocent
async def numbers() -> Any:
    return math.sqrt(2), Decimal("1.5") + 1, round(2.5), divmod(7, 2), abs(-1), pow(2, 3)


@innocent
async def collections_() -> Any:
    table: defaultdict[str, int] = defaultdict(int)
    table["a"] += 1
    return Counter("aab"), table, list(chain([1], [2])), reduce(lambda a, b: a + b, [1, 2])


@innocent
async def local_changes() -> Any:
    items: list[int] = []
    items.append(1)
    table: dict[str, int] = {}
    table["x"] = 1
    return items, table


@innocent
async def pure_paths() -> Any:
    return str(Path("a") / "b"), PurePosixPath("a").name, os.path.join("a", "b"), os.path.basename("a/b"), os.sep


@innocent
async def exceptions() -> Any:
    try:
        raise ValueError("x")
    except ValueError as error:
        return str(error)


@innocent
async def nested_functions() -> Any:
    total = 0

    def add(n: int) -> None:
        nonlocal total
        total += n

    add(1)
    return total


@innocent
async def matches(value: Any = None) -> Any:
    match value:
        case {"a": a}:
            return a
        case [x, *_]:
            return x
        case _:
            return None


@innocent
async def constants() -> Any:
    return LIMIT, NAMES[0], TABLE["a"]


@innocent
async def status_and_state() -> Any:
    status("busy")
    state["count"] = 1


@innocent
async def children() -> Any:
    return await a_child()


@innocent
async def traverses() -> Any:
    return await traverse([1, 2], pure)


@innocent
async def timeouts() -> Any:
    async with asyncio.timeout(5):
        await asyncio.sleep(1)


@innocent
async def groups() -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(1))


@innocent
async def queues_and_locks() -> Any:
    queue: asyncio.Queue[int] = asyncio.Queue()
    async with asyncio.Lock():
        await queue.put(1)
    return await queue.get()


@innocent
async def datetimes() -> Any:
    return datetime.datetime(2020, 1, 1) + datetime.timedelta(days=1), datetime.datetime.fromisoformat("2020-01-01")


@innocent
async def sorting() -> Any:
    return sorted(NAMES, key=lambda name: len(name)), min(NAMES), [*reversed(NAMES)]


@innocent
async def names_like_functions() -> Any:
    open_ = 1
    time_ = 2
    return open_ + time_


@innocent
async def parameters_like_modules(random: Any = None, cache: Any = None) -> Any:
    return random, cache


@innocent
async def methods_like_paths(order: Any = None) -> Any:
    return order.exists() if order else None


@innocent
async def walrus() -> Any:
    if (n := len(NAMES)) > 1:
        return n


@innocent
async def unpacking() -> Any:
    first, *rest = NAMES
    return [*rest, first], {**TABLE, "b": 2}


@innocent
async def annotations() -> Any:
    path: Path = Path("x")
    moment: datetime.datetime | None = None
    return path.name, moment


@innocent
async def asserts() -> Any:
    assert NAMES, "empty"
    return all(isinstance(name, str) for name in NAMES)


INNOCENT["auto"] = workflow(auto=True, name="auto")(pure)


@workflow(auto=True)
def auto_records_what_it_calls() -> Any:
    return [os.getpid(), os.environ.get("X"), os.listdir("."), time.time(), pure(1), [os.stat(n) for n in "a"]]


INNOCENT["auto_records_what_it_calls"] = auto_records_what_it_calls
