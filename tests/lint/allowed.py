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

from perdure import info, log, now, sleep, state, status, step, traverse, uuid4, workflow
from perdure.types import Workflow

ALLOWED: dict[str, Workflow[..., Any]] = {}
LIMIT = 3
NAMES = ["a", "b"]
TABLE = {"a": 1}
logger = logging.getLogger(__name__)


def allowed(function: Any) -> Any:
    ALLOWED[function.__name__] = workflow(function)
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


@allowed
async def clock() -> Any:
    return [time.time(), datetime.datetime.now(), time.monotonic(), datetime.date.today()]


@allowed
async def chance() -> Any:
    return [random.random(), random.choice(NAMES), uuid.uuid4(), random.Random(4).random(), os.urandom(4)]


@allowed
async def perdures_own() -> Any:
    return [now(), uuid4(), info().id]


@allowed
async def calls_a_step() -> Any:
    return await reads_a_file("x")


@allowed
async def helpers() -> Any:
    return pure(3)


@allowed
async def gathers() -> Any:
    return await asyncio.gather(reads_a_file("a"), reads_a_file("b"))


@allowed
async def sleeps() -> Any:
    await sleep(1)
    await asyncio.sleep(1)


@allowed
async def logs() -> Any:
    logger.info("hello")
    log.info("hello")
    logging.getLogger("x").warning("y")


@allowed
async def prints() -> Any:
    print("hello")


@allowed
async def dataclasses_() -> Any:
    return replace(Order("a"), items=["x"])


@allowed
async def sorted_sets() -> Any:
    return [one for one in sorted({"b", "a"})], len({1}), sum({1, 2}), max({1, 2}), any(n for n in {1, 2})  # noqa: C416


@allowed
async def membership() -> Any:
    known = {"a", "b"}
    return "a" in known, known | {"c"}


@allowed
async def set_comprehensions() -> Any:
    return {len(name) for name in NAMES}


@allowed
async def big_comprehensions() -> Any:
    return [[n * m for n in range(100)] for m in range(100)], {n: str(n) for n in range(1000)}


@allowed
async def generators() -> Any:
    return sum(n for n in range(1000))


@allowed
async def imports_inside() -> Any:
    import math as m
    from operator import add

    return m.pi, add(1, 2)


@allowed
async def texts() -> Any:
    return json.dumps({"a": 1}), re.sub("a", "b", "a"), "a".upper(), f"{LIMIT:>3}"


@allowed
async def numbers() -> Any:
    return math.sqrt(2), Decimal("1.5") + 1, round(2.5), divmod(7, 2), abs(-1), pow(2, 3)


@allowed
async def collections_() -> Any:
    table: defaultdict[str, int] = defaultdict(int)
    table["a"] += 1
    return Counter("aab"), table, list(chain([1], [2])), reduce(lambda a, b: a + b, [1, 2])


@allowed
async def local_changes() -> Any:
    items: list[int] = []
    items.append(1)
    table: dict[str, int] = {}
    table["x"] = 1
    return items, table


@allowed
async def pure_paths() -> Any:
    return str(Path("a") / "b"), PurePosixPath("a").name, os.path.join("a", "b"), os.path.basename("a/b"), os.sep


@allowed
async def exceptions() -> Any:
    try:
        raise ValueError("x")
    except ValueError as error:
        return str(error)


@allowed
async def nested_functions() -> Any:
    total = 0

    def add(n: int) -> None:
        nonlocal total
        total += n

    add(1)
    return total


@allowed
async def matches(value: Any = None) -> Any:
    match value:
        case {"a": a}:
            return a
        case [x, *_]:
            return x
        case _:
            return None


@allowed
async def constants() -> Any:
    return LIMIT, NAMES[0], TABLE["a"]


@allowed
async def status_and_state() -> Any:
    status("busy")
    state["count"] = 1


@allowed
async def children() -> Any:
    return await a_child()


@allowed
async def traverses() -> Any:
    return await traverse([1, 2], pure)


@allowed
async def timeouts() -> Any:
    async with asyncio.timeout(5):
        await asyncio.sleep(1)


@allowed
async def groups() -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(1))


@allowed
async def queues_and_locks() -> Any:
    queue: asyncio.Queue[int] = asyncio.Queue()
    async with asyncio.Lock():
        await queue.put(1)
    return await queue.get()


@allowed
async def datetimes() -> Any:
    return datetime.datetime(2020, 1, 1) + datetime.timedelta(days=1), datetime.datetime.fromisoformat("2020-01-01")


@allowed
async def sorting() -> Any:
    return sorted(NAMES, key=lambda name: len(name)), min(NAMES), [*reversed(NAMES)]


@allowed
async def names_like_functions() -> Any:
    open_ = 1
    time_ = 2
    return open_ + time_


@allowed
async def parameters_like_modules(random: Any = None, cache: Any = None) -> Any:
    return random, cache


@allowed
async def methods_like_paths(order: Any = None) -> Any:
    return order.exists() if order else None


@allowed
async def walrus() -> Any:
    if (n := len(NAMES)) > 1:
        return n


@allowed
async def unpacking() -> Any:
    first, *rest = NAMES
    return [*rest, first], {**TABLE, "b": 2}


@allowed
async def annotations() -> Any:
    path: Path = Path("x")
    moment: datetime.datetime | None = None
    return path.name, moment


@allowed
async def asserts() -> Any:
    assert NAMES, "empty"
    return all(isinstance(name, str) for name in NAMES)


ALLOWED["auto"] = workflow(auto=True, name="auto")(pure)


@workflow(auto=True)
def auto_records_what_it_calls() -> Any:
    return [os.getpid(), os.environ.get("X"), os.listdir("."), time.time(), pure(1), [os.stat(n) for n in "a"]]


ALLOWED["auto_records_what_it_calls"] = auto_records_what_it_calls
