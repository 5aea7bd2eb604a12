"""Workflows that a replay would not repeat, each with the words the lint must find. The line is marked `# here`."""

from __future__ import annotations

import datetime
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from os import environ
from pathlib import Path
from time import sleep as pause
from time import time as seconds
from typing import Any

from perdure import workflow
from perdure.types import Workflow

FORBIDDEN: dict[str, tuple[Workflow[..., Any], str, str]] = {}
cache: dict[str, int] = {}
count = 0


def forbidden(what: str, instead: str, *, auto: bool = False) -> Any:
    def decorate(function: Any) -> Any:
        made = workflow(auto=True)(function) if auto else workflow(function)
        FORBIDDEN[function.__name__] = (made, what, instead)
        return made

    return decorate


def remember(key: str) -> None:
    cache[key] = 1


def bump() -> None:
    global count
    count += 1


def helper_reads_the_clock() -> float:
    return time.time()  # here helper_clock, here helper_of_a_helper


def helper_of_helper() -> float:
    return helper_reads_the_clock()


def helper_draws() -> int:
    return random.randint(1, 6)  # here helper_chance


def helper_alias() -> float:
    return seconds()  # here helper_alias_of_the_clock


def helper_now() -> str:
    return datetime.datetime.now().isoformat()  # here helper_datetime


def helper_uuid() -> str:
    return str(uuid.uuid4())  # here helper_uuid4


def helper_writes(path: str) -> None:
    with open(path, "w"):  # here helper_io
        pass


@forbidden("time.time()", "now()")
async def helper_clock() -> Any:
    return helper_reads_the_clock()


@forbidden("time.time()", "now()")
async def helper_of_a_helper() -> Any:
    return helper_of_helper()


@forbidden("random.randint()", "random()")
async def helper_chance() -> Any:
    return helper_draws()


@forbidden("seconds()", "now()")
async def helper_alias_of_the_clock() -> Any:
    return helper_alias()


@forbidden("datetime.datetime.now()", "now()")
async def helper_datetime() -> Any:
    return helper_now()


@forbidden("uuid.uuid4()", "uuid4()")
async def helper_uuid4() -> Any:
    return helper_uuid()


@forbidden("open()", "a step")
async def helper_io() -> Any:
    helper_writes("x")


@forbidden("time.sleep()", "await sleep")
async def blocks() -> Any:
    time.sleep(1)  # here blocks


@forbidden("pause()", "await sleep")
async def blocks_by_an_alias() -> Any:
    pause(1)  # here blocks_by_an_alias


@forbidden("open()", "a step")
async def opens() -> Any:
    with open("x") as file:  # here opens
        return file.read()


@forbidden("read_text() of a path", "a step")
async def reads_a_path() -> Any:
    return Path("x").read_text()  # here reads_a_path


@forbidden("exists() of a path", "a step")
async def looks_at_a_path() -> Any:
    return (Path("x") / "y").parent.exists()  # here looks_at_a_path


@forbidden("os.listdir()", "a step")
async def lists() -> Any:
    return os.listdir(".")  # here lists


@forbidden("os.path.exists()", "a step")
async def asks_for_a_file() -> Any:
    return os.path.exists("x")  # here asks_for_a_file


@forbidden("os.remove()", "a step")
async def removes() -> Any:
    os.remove("x")  # here removes


@forbidden("tempfile.mkdtemp()", "a step")
async def temporary() -> Any:
    return tempfile.mkdtemp()  # here temporary


@forbidden("socket.create_connection()", "a step")
async def connects() -> Any:
    return socket.create_connection(("x", 1))  # here connects


@forbidden("urllib.request.urlopen()", "a step")
async def downloads() -> Any:
    return urllib.request.urlopen("http://x")  # here downloads


@forbidden("sqlite3.connect()", "a step")
async def queries() -> Any:
    return sqlite3.connect("x")  # here queries


@forbidden("subprocess.run()", "a step")
async def spawns() -> Any:
    return subprocess.run(["x"])  # here spawns


@forbidden("os.system()", "a step")
async def shells() -> Any:
    return os.system("x")  # here shells


@forbidden("threading.Thread()", "tasks")
async def threads() -> Any:
    threading.Thread(target=print).start()  # here threads


@forbidden("ThreadPoolExecutor()", "tasks")
async def pools() -> Any:
    return ThreadPoolExecutor()  # here pools


@forbidden("threading.Lock()", "tasks")
async def locks() -> Any:
    return threading.Lock()  # here locks


@forbidden("os.getenv()", "argument")
async def asks_the_environment() -> Any:
    return os.getenv("X")  # here asks_the_environment


@forbidden("reads the environment", "argument")
async def reads_the_environment() -> Any:
    return os.environ["X"]  # here reads_the_environment


def helper_token() -> str:
    return secrets.token_hex()  # here draws_a_secret


@forbidden("secrets.token_hex()", "a step")
async def draws_a_secret() -> Any:
    return helper_token()


def helper_bytes() -> bytes:
    return os.urandom(4)  # here draws_bytes


@forbidden("os.urandom()", "a step")
async def draws_bytes() -> Any:
    return helper_bytes()


@forbidden("os.getpid()", "a step")
async def asks_for_its_process() -> Any:
    return os.getpid()  # here asks_for_its_process


@forbidden("hash()", "hashlib")
async def hashes() -> Any:
    return hash("text")  # here hashes


@forbidden("id()", "differs")
async def identifies() -> Any:
    return id(object())  # here identifies


@forbidden("input()", "receive")
async def asks_a_person() -> Any:
    return input("? ")  # here asks_a_person


@forbidden("order of a set", "sorted")
async def goes_through_a_set() -> Any:
    for one in {"a", "b"}:  # here goes_through_a_set
        print(one)


@forbidden("order of a set", "sorted")
async def goes_through_a_variable() -> Any:
    names = set("ab")
    return [one for one in names]  # noqa: C416  # here goes_through_a_variable


@forbidden("order of a set", "sorted")
async def lists_a_set() -> Any:
    return list({"a", "b"} | {"c"})  # here lists_a_set


@forbidden("uses the global 'cache'", "argument")
async def uses_a_cache() -> Any:
    return cache.get("x")  # here uses_a_cache


@forbidden("uses the global 'count'", "argument")
async def uses_a_counter() -> Any:
    return count + 1  # here uses_a_counter


@forbidden("writes the global 'count'", "state")
async def writes_a_counter() -> Any:
    global count  # here writes_a_counter
    count = 2


@forbidden("open()", "a step")
async def in_a_nested_function() -> Any:
    def read() -> str:
        return open("x").read()  # here in_a_nested_function

    return read()


@forbidden("os.getpid()", "a step")
async def in_a_lambda() -> Any:
    return sorted([1], key=lambda n: os.getpid())  # here in_a_lambda


@forbidden("sub.run()", "a step")
async def with_an_import_inside() -> Any:
    import subprocess as sub

    return sub.run(["x"])  # here with_an_import_inside


@forbidden("open()", "a step", auto=True)
def auto_in_a_nested_function() -> Any:
    def read() -> str:
        return open("x").read()  # here auto_in_a_nested_function

    return read()


@forbidden("read_text() of a path", "a step", auto=True)
def auto_reads_a_path() -> Any:
    return Path("x").read_text()  # here auto_reads_a_path


@forbidden("reads the environment", "argument", auto=True)
def auto_environment() -> Any:
    return os.environ["X"]  # here auto_environment


_ = environ
