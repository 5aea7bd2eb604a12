"""An app for `perdure worker`: runs that leave a mark every moment, with the process that they are in."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from perdure import sleep, step, workflow


@step
async def fleet_tick(path: str, name: str) -> None:
    with open(path, "a") as file:  # one line, so that each is written at once
        file.write(f"{time.time()} {os.getpid()} {name}\n")


@step
async def fleet_work(path: str, name: str) -> str:
    """Takes until a file is there."""
    with open(path, "a") as file:
        file.write(f"{time.time()} {os.getpid()} {name}\n")
    while not os.path.exists(f"{path}.go"):  # told by another process
        await asyncio.sleep(0.01)
    return name


@workflow
async def fleet_ticking(path: str, name: str, pause: float) -> None:
    while True:
        await fleet_tick(path, name)
        await sleep(pause)


@workflow
async def fleet_working(path: str, name: str) -> str:
    return await fleet_work(path, name)


class Tick(NamedTuple):
    at: float
    pid: int
    name: str


def ticks(path: Path) -> list[Tick]:
    """All marks but one that is just being written."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [Tick(float(at), int(pid), name) for at, pid, name in (line.split(" ") for line in lines)]


def pids(path: Path) -> dict[str, int]:
    """Where each run left its last mark."""
    return {one.name: one.pid for one in ticks(path)}


def first_elsewhere(path: Path, names: Iterable[str], pid: int, after: float) -> dict[str, float]:
    """How long it took each run to leave a mark in another process."""
    wanted = set(names)
    found: dict[str, float] = {}
    for one in ticks(path):
        if one.at > after and one.pid != pid and one.name in wanted:
            found.setdefault(one.name, one.at - after)
    return found
