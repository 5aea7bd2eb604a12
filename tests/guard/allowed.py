"""Workflows about which no layer has anything to say, beside those of `lint.allowed`."""

from __future__ import annotations

import asyncio
import calendar
import contextlib
import copy
import datetime
import enum
import functools
import hashlib
import inspect
import io
import linecache
import logging
import os
import pickle
import random
import statistics
import tempfile
import textwrap
import time
import traceback
import typing
import uuid
import warnings
import weakref
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic

from perdure import (
    Ok,
    attempt,
    info,
    join,
    log,
    loop,
    now,
    patched,
    race,
    saga,
    sleep,
    start_child,
    state,
    status,
    step,
    traverse,
    uuid4,
    workflow,
)
from perdure import random as drawn
from perdure.kernel.iterations import Break
from perdure.types import Workflow

ALLOWED: dict[str, Workflow[..., Any]] = {}
logger = logging.getLogger("guard.allowed")


def allowed(function: Any) -> Any:
    ALLOWED[function.__name__] = workflow(name=f"guarded_{function.__name__}")(function)
    return function


@step
async def reads_files() -> int:
    with tempfile.TemporaryFile() as file:
        return file.write(str(time.time()).encode()) + os.getpid()


@step
def reads_in_a_thread() -> float:
    os.listdir(".")
    return random.random()


@step
async def undo(_number: int) -> None:
    os.stat(".")


@workflow(name="guarded_child")
async def child(number: int) -> int:
    await reads_files()
    return number


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Order:
    id: str
    items: tuple[str, ...] = ()
    tags: list[str] = field(default_factory=list, compare=False)


class Keyed:
    def __init__(self, key: str) -> None:
        self.key = key

    def __hash__(self) -> int:
        return hash((self.key, 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and other.key == self.key

    @functools.cached_property
    def length(self) -> int:
        return len(self.key)


class Model(pydantic.BaseModel):
    name: str
    at: datetime.datetime | None = None
    parts: list[int] = pydantic.Field(default_factory=list)

    @pydantic.field_validator("name")
    @classmethod
    def _upper(cls, name: str) -> str:
        return name.upper()


@attrs.define
class Attrs:
    name: str
    count: int = attrs.field(default=0, validator=attrs.validators.instance_of(int))


class Packed(msgspec.Struct):
    name: str


class LetsGo:
    """Cleans up when it is let go, wherever that happens to be."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.remove(self.path)


@allowed
async def steps_do_io() -> Any:
    return [await reads_files(), await reads_in_a_thread()]


@allowed
async def children() -> Any:
    handle = await start_child(child(2))
    return [await child(1), await handle]


@allowed
async def pydantic_models() -> Any:
    model = Model.model_validate({"name": "a", "at": "2020-01-01T00:00:00Z"})
    return [model.model_dump_json(), Model.model_json_schema()["title"], model.model_copy(update={"name": "b"}).name]


@allowed
async def a_pydantic_model_made_here() -> Any:
    made = pydantic.create_model("Made", number=(int, ...))
    try:
        made(number="no")
    except pydantic.ValidationError as error:
        return error.error_count()


@allowed
async def dataclasses_() -> Any:
    return asdict(Order("a", ("x",)))


@allowed
async def a_dataclass_made_here() -> Any:
    @dataclass
    class Local:
        a: int

    return Local(1).a


@allowed
async def attrs_and_structs() -> Any:
    return [attrs.asdict(Attrs("a")), msgspec.to_builtins(Packed("b"))]


@allowed
async def hashes_of_its_own() -> Any:
    return [len({Keyed("a"), Keyed("a"), Keyed("b")}), Keyed("abc").length, Keyed("a") in {Keyed("a"): 1}]


@allowed
async def hashable_dataclasses() -> Any:
    return len({Order("a"), Order("a"), Order("b")})


@allowed
async def writes_logs() -> Any:
    logger.warning("one %s", 1)
    log.info("two")
    logging.getLogger("guard.other").error("three", stack_info=True)


@allowed
async def logs_an_exception() -> Any:
    try:
        raise ValueError("x")
    except ValueError:
        logger.exception("it went wrong")


@allowed
async def opens_a_log_file() -> Any:
    handler = logging.FileHandler(os.devnull)
    handler.emit(logging.makeLogRecord({"msg": "x"}))
    handler.close()


@allowed
async def imports_inside() -> Any:
    import colorsys
    import wave  # noqa: F401
    from xml.etree import ElementTree

    return [colorsys.rgb_to_hls(0, 0, 0), ElementTree.fromstring("<a/>").tag]


@allowed
async def imports_by_name() -> Any:
    import importlib

    return importlib.import_module("tabnanny").__name__


@allowed
async def tracebacks() -> Any:
    try:
        raise KeyError("x")
    except KeyError as error:
        return [len(traceback.format_exc()) > 0, len(traceback.format_tb(error.__traceback__))]


@allowed
async def sources() -> Any:
    linecache.clearcache()
    return [linecache.getline(__file__, 1)[:3], inspect.getsource(Keyed)[:5]]


@allowed
async def warns() -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("careful", UserWarning, stacklevel=1)
    return len(caught)


@allowed
async def time_zones() -> Any:
    ZoneInfo.clear_cache()
    return datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC).astimezone(ZoneInfo("Europe/Berlin")).isoformat()


@allowed
async def dates() -> Any:
    made = datetime.datetime.strptime("2024-02-03", "%Y-%m-%d")
    return [made.isoformat(), calendar.monthrange(2024, 2), (made + datetime.timedelta(days=1)).strftime("%A")]


def as_text(seconds: float) -> list[str]:
    return [time.strftime("%Y", time.gmtime(seconds)), time.asctime(time.gmtime(seconds)), time.ctime(seconds)[-4:]]


@allowed
async def times_that_are_given() -> Any:
    return as_text(1_700_000_000.0)


def seeded(seed: int) -> float:
    generator = random.Random(seed)
    return generator.random() + generator.randint(1, 6)


@allowed
async def a_seed_of_its_own() -> Any:
    return seeded(4)


def named(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name)) + str(uuid.UUID(int=1))


@allowed
async def names_as_uuids() -> Any:
    return named("a")


@allowed
async def stand_ins() -> Any:
    found = [time.time(), time.monotonic_ns(), time.perf_counter(), str(uuid.uuid4()), str(uuid.uuid1())]
    found += [random.random(), random.choice([1, 2]), random.Random().random(), os.urandom(2), time.ctime()]
    return [*found, datetime.datetime.now().isoformat(), datetime.date.today().isoformat(), random.sample([1, 2, 3], 2)]


@allowed
async def perdures_own() -> Any:
    status("busy")
    state["n"] = 1
    return [now().isoformat(), str(uuid4()), drawn(), info().id, patched("x")]


@allowed
async def tools_of_asyncio() -> Any:
    condition, event, queue = asyncio.Condition(), asyncio.Event(), asyncio.Queue[int]()

    async def waits() -> int:
        async with condition, asyncio.Semaphore(2), asyncio.Lock():
            await event.wait()
        return await queue.get()

    task = asyncio.create_task(waits())
    await sleep(1)
    event.set()
    await queue.put(3)
    return await asyncio.wait_for(asyncio.shield(task), 5)


@allowed
async def asyncio_in_order() -> Any:
    found = [await one for one in asyncio.as_completed([reads_files(), reads_in_a_thread()])]
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(reads_files())
    done, _ = await asyncio.wait([asyncio.ensure_future(reads_files())])
    return len(found) + len(done)


@allowed
async def compositions() -> Any:
    winner = await race(a=reads_files(), b=sleep(5))
    both = await join(a=reads_files(), b=reads_in_a_thread())
    return [winner.name, sorted(both), isinstance(await attempt(reads_files()), Ok)]


@allowed
async def sagas() -> Any:
    with contextlib.suppress(ValueError):
        async with saga() as one:
            await one.do(reads_files, undo=undo)
            raise ValueError("undo it")


@allowed
async def loops() -> Any:
    async def body(number: int) -> Any:
        await reads_files()
        return Break(number) if number > 2 else number + 1

    return [await loop(body, 0), await traverse([1, 2], child)]


@allowed
async def big_comprehensions() -> Any:
    return sum(len([n * m for n in range(200)]) for m in range(200)), len({n: str(n) for n in range(20_000)})


@allowed
async def copies_and_digests() -> Any:
    order = Order("a", ("b",))
    return [copy.deepcopy(order).id, pickle.loads(pickle.dumps(order)).id, hashlib.sha256(b"x").hexdigest()[:4]]


@allowed
async def texts_in_memory() -> Any:
    with io.StringIO("a\nb") as file, io.BytesIO(b"x") as data:
        return [file.readlines(), data.read().decode(), textwrap.dedent("  x"), statistics.mean([1, 2])]


@allowed
async def captures_output() -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as captured:
        print("hello")
    return captured.getvalue()


@allowed
async def lets_go() -> Any:
    LetsGo("/nonexistent/perdure")
    weakref.finalize(Keyed("x"), os.listdir, ".")
    return 1


@allowed
async def types_and_enums() -> Any:
    hints = typing.get_type_hints(Order)
    return [Colour(1).name, sorted(hints), Colour["RED"].value, Path("a/b").name, os.path.join("a", "b")]


@allowed
async def caches() -> Any:
    @functools.cache
    def square(n: int) -> int:
        return n * n

    return [square(2), square(2), functools.reduce(lambda a, b: a + b, [1, 2])]


@allowed
async def exits() -> Any:
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: None)
    async with contextlib.AsyncExitStack():
        await reads_files()


@allowed
async def regular_expressions() -> Any:
    import re

    return re.compile(r"(\d+)").findall("a1b22")


def cached_schema() -> Any:
    return inspect.signature(as_text).parameters.keys()


@allowed
async def signatures() -> Any:
    return sorted(cached_schema())


@allowed
async def codecs_() -> Any:
    return ["é".encode("utf-16"), b"abc".decode("cp037"), "x".encode("idna")]
