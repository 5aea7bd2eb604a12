"""Workflows that do what they should not, most of them where a reader of the source would not see it.

Each says which layer stops it, the call as it is named, and what to write instead. The workflows of `lint.forbidden`,
which the lint finds by reading, are listed by name with what becomes of them when they run all the same.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import datetime
import functools
import glob
import http.client
import multiprocessing
import os
import platform
import random
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime as moment
from pathlib import Path
from time import sleep as pause
from time import time as t
from typing import Any, Literal, NamedTuple

from perdure import step, workflow
from perdure.types import Workflow

Layer = Literal["run time", "strict"]


class Case(NamedTuple):
    flow: Workflow[..., Any]
    layer: Layer
    call: str
    instead: str


FORBIDDEN: dict[str, Case] = {}
A_STEP = "@step"


def forbidden(layer: Layer, call: str, instead: str, *, auto: bool = False) -> Any:
    def decorate(function: Any) -> Any:
        name = f"guarded_{function.__name__}"
        made = workflow(auto=True, name=name)(function) if auto else workflow(name=name)(function)
        FORBIDDEN[function.__name__] = Case(made, layer, call, instead)
        return made

    return decorate


@step
async def one() -> int:
    return 1


# -- at run time ---------------------------------------------------------------------------------------------------


@forbidden("run time", "open()", A_STEP)
async def opens_under_another_name() -> Any:
    return getattr(builtins, "op" + "en")("x").read()


class Files:
    def __init__(self, name: str) -> None:
        self.name = name

    def read(self) -> str:
        with open(self.name) as file:
            return file.read()

    @property
    def content(self) -> str:
        return self.read()

    def __enter__(self) -> int:
        return os.open(self.name, os.O_RDONLY)

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[str]:
        yield from open(self.name)  # noqa: SIM115


@forbidden("run time", "open()", A_STEP)
async def reads_by_a_method() -> Any:
    return Files("x").read()


@forbidden("run time", "open()", A_STEP)
async def reads_by_a_property() -> Any:
    return Files("x").content


@forbidden("run time", "open()", A_STEP)
async def opens_in_a_context_manager() -> Any:
    with Files("x") as file:
        return file


@forbidden("run time", "open()", A_STEP)
async def opens_in_a_generator() -> Any:
    return list(Files("x"))


@forbidden("run time", "Path.read_text()", A_STEP)
async def reads_a_path_of_a_variable() -> Any:
    path = {"it": Path("x")}["it"]
    return path.read_text()


@forbidden("run time", "shutil.copyfile()", A_STEP)
async def copies_by_a_table() -> Any:
    return {"copy": shutil.copyfile}["copy"]("x", "y")


@forbidden("run time", "sqlite3.connect", A_STEP)
async def connects_to_a_database() -> Any:
    return functools.partial(sqlite3.connect, ":memory:")()


@forbidden("run time", "http.client.HTTPConnection.connect()", A_STEP)
async def asks_a_server() -> Any:
    return http.client.HTTPConnection("127.0.0.1", 9).connect()


@forbidden("run time", "socket", A_STEP)
async def makes_a_socket() -> Any:
    kind = vars(socket)["socket"]
    return kind()


@forbidden("run time", "socket.getaddrinfo()", A_STEP)
async def looks_up_a_name() -> Any:
    return getattr(socket, "getaddrinfo")("localhost", 80)  # noqa: B009


@forbidden("run time", "os.walk()", A_STEP)
async def walks() -> Any:
    return [*getattr(os, "walk")(".")]  # noqa: B009


@forbidden("run time", "tempfile.NamedTemporaryFile()", A_STEP)
async def makes_a_temporary_file() -> Any:
    return vars(tempfile)["NamedTemporaryFile"]()


@forbidden("run time", "multiprocessing", A_STEP)
async def starts_a_process() -> Any:
    return getattr(multiprocessing.get_context("fork"), "Process")(target=print).start()  # noqa: B009


@forbidden("run time", "subprocess.check_output()", A_STEP)
async def asks_a_program() -> Any:
    return vars(subprocess)["check_output"](["true"])


@forbidden("run time", "os.kill()", A_STEP)
async def sends_a_signal() -> Any:
    return getattr(os, "kill")(0, 0)  # noqa: B009


@forbidden("run time", "glob.glob()", A_STEP)
async def globs() -> Any:
    return vars(glob)["glob"]("*")


@forbidden("run time", "input()", "receive")
async def asks_at_the_terminal() -> Any:
    return vars(builtins)["input"]()


@forbidden("run time", "os.listdir()", A_STEP)
async def lists_in_a_sort_key() -> Any:
    return sorted([1, 2], key=lambda n: len(getattr(os, "listdir")(".")))  # noqa: B009


async def async_helper(name: str) -> str:
    await one()
    return Files(name).read()


@forbidden("run time", "open()", A_STEP)
async def opens_in_an_async_helper() -> Any:
    return await async_helper("x")


@forbidden("run time", "open()", A_STEP)
async def opens_in_a_gather() -> Any:
    return await asyncio.gather(async_helper("x"), one())


@forbidden("run time", "open()", A_STEP)
async def opens_in_a_task_group() -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(async_helper("x"))


@forbidden("run time", "open()", A_STEP)
async def opens_in_a_finally_block() -> Any:
    try:
        await one()
    finally:
        Files("x").read()


@forbidden("run time", "open()", A_STEP, auto=True)
def auto_reads_by_a_method() -> Any:
    files = Files("x")

    def inner() -> str:
        return files.read()

    return inner()


@forbidden("run time", "time.sleep()", "await sleep")
async def sleeps_by_itself() -> Any:
    time.sleep(60)


@forbidden("run time", "loop.run_in_executor()", A_STEP)
async def uses_an_executor() -> Any:
    await asyncio.to_thread(print)


# -- in tests, by the strict guard -----------------------------------------------------------------------------------


class Clock:
    def now(self) -> float:
        return t()

    def today(self) -> datetime.date:
        return datetime.date.today()

    def later(self) -> str:
        return moment.now(datetime.UTC).isoformat()


@forbidden("strict", "time.time()", "now()")
async def takes_an_alias_of_the_clock() -> Any:
    return Clock().now()


@forbidden("strict", "datetime.date.today()", "now()")
async def takes_the_date() -> Any:
    return Clock().today()


@forbidden("strict", "datetime.datetime.now()", "now()")
async def takes_an_alias_of_datetime() -> Any:
    return Clock().later()


@forbidden("strict", "time.monotonic()", "now()")
async def takes_a_clock_from_a_table() -> Any:
    return CLOCKS["monotonic"]()


CLOCKS: dict[str, Any] = {"monotonic": time.monotonic, "bare": time.ctime}


@forbidden("strict", "time.ctime()", "now()")
async def takes_the_time_as_text() -> Any:
    return CLOCKS["bare"]()


@dataclass
class Stamped:
    at: float = field(default_factory=time.time)
    key: uuid.UUID = field(default_factory=uuid.uuid4)


@forbidden("strict", "time.time()", "now()")
async def makes_a_stamped_value() -> Any:
    return Stamped().at


@forbidden("strict", "uuid.uuid4()", "uuid4()")
async def makes_a_key() -> Any:
    return str(Stamped(at=0.0).key)


class Dice:
    def throw(self) -> int:
        return random.randint(1, 6)

    def fresh(self) -> float:
        return random.Random().random()

    def shuffled(self) -> list[int]:
        deck = [1, 2, 3]
        random.shuffle(deck)
        return deck

    def secret(self) -> str:
        return secrets.token_hex(4)

    def system(self) -> float:
        return random.SystemRandom().random()

    def raw(self) -> bytes:
        return os.urandom(4)

    def old(self) -> str:
        return str(uuid.uuid1())


@forbidden("strict", "random.randint()", "random()")
async def throws_dice() -> Any:
    return Dice().throw()


@forbidden("strict", "random.__init__()", "seed")
async def makes_dice_without_a_seed() -> Any:
    return Dice().fresh()


@forbidden("strict", "random.shuffle()", "random()")
async def shuffles() -> Any:
    return Dice().shuffled()


@forbidden("strict", "secrets.token_hex()", "step")
async def draws_a_token() -> Any:
    return Dice().secret()


@forbidden("strict", "SystemRandom.random()", "step")
async def draws_from_the_system() -> Any:
    return Dice().system()


@forbidden("strict", "os.urandom()", "step")
async def draws_raw_bytes() -> Any:
    return Dice().raw().hex()


@forbidden("strict", "uuid.uuid1()", "uuid4()")
async def names_the_machine() -> Any:
    return Dice().old()


class Machine:
    def process(self) -> int:
        return os.getpid()

    def place(self) -> str:
        return os.getcwd()

    def variable(self) -> str | None:
        return os.environ.get("X")

    def environment(self) -> str | None:
        return os.getenv("X")

    def has_file(self) -> bool:
        return os.path.exists("x")

    def has_path(self) -> bool:
        return Path("x").exists()

    def name(self) -> str:
        return platform.node()

    def waits(self) -> None:
        pause(60)

    def thread(self) -> None:
        threading.Thread(target=print).start()

    def address(self) -> int:
        return id(self)

    def mark(self) -> int:
        return hash("text")


@forbidden("strict", "os.getpid()", "step")
async def asks_for_its_process() -> Any:
    return Machine().process()


@forbidden("strict", "os.getcwd()", "step")
async def asks_where_it_is() -> Any:
    return Machine().place()


@forbidden("strict", "Mapping.get()", "argument")
async def looks_at_the_environment() -> Any:
    return Machine().variable()


@forbidden("strict", "os.getenv()", "argument")
async def asks_the_environment() -> Any:
    return Machine().environment()


@forbidden("strict", "genericpath.exists()", "step")
async def looks_for_a_file() -> Any:
    return Machine().has_file()


@forbidden("strict", "exists()", "step")
async def looks_for_a_path() -> Any:
    return Machine().has_path()


@forbidden("strict", "platform.node()", "step")
async def asks_for_the_host() -> Any:
    platform.uname.cache_clear() if hasattr(platform.uname, "cache_clear") else setattr(platform, "_uname_cache", None)
    return Machine().name()


if sys.version_info < (3, 13):  # later Pythons ask audit hooks first

    @forbidden("strict", "time.sleep()", "await sleep")
    async def waits_for_real() -> Any:
        Machine().waits()
else:

    @forbidden("run time", "time.sleep()", "await sleep")
    async def waits_for_real() -> Any:
        Machine().waits()


@forbidden("strict", "Thread.start()", "tasks")
async def starts_a_thread() -> Any:
    Machine().thread()


@forbidden("strict", "id()", "differs")
async def takes_an_address() -> Any:
    return Machine().address()


@forbidden("strict", "hash()", "hashlib")
async def takes_a_hash() -> Any:
    return Machine().mark()


@forbidden("strict", "os.getpid()", "step")
async def catches_everything() -> Any:
    with contextlib.suppress(Exception):
        return Machine().process()
    return 0


#: What stops the workflows of `lint.forbidden` when they run: the rest only the lint can know.
OF_THE_LINT: dict[str, Layer] = {
    **dict.fromkeys(
        (
            "helper_io", "blocks", "opens", "reads_a_path", "lists", "removes", "temporary", "connects", "downloads",
            "queries", "spawns", "shells", "asks_a_person", "in_a_nested_function", "with_an_import_inside",
            "auto_in_a_nested_function", "auto_reads_a_path",
        ),
        "run time",
    ),
    **dict.fromkeys(
        (
            "helper_clock", "helper_of_a_helper", "helper_chance", "helper_alias_of_the_clock", "helper_datetime",
            "helper_uuid4", "looks_at_a_path", "asks_for_a_file", "asks_the_environment", "reads_the_environment",
            "draws_a_secret", "draws_bytes", "asks_for_its_process", "hashes", "identifies", "in_a_lambda", "threads",
            "auto_environment",
        ),
        "strict",
    ),
    "blocks_by_an_alias": "run time",
}  # fmt: skip
