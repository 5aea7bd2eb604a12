"""Steps with `isolation="process"`, at the top level of a module so that the other process finds them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure import current_step, step, workflow


@dataclass
class Report:
    pid: int
    attempt: int
    key: str


class Unwell(Exception):
    pass


@step(isolation="process")
def report() -> Report:
    print("this goes to stderr, not into the answer")
    return Report(os.getpid(), current_step().attempt, current_step().idempotency_key)


@step(isolation="process")
async def report_async() -> Report:
    return Report(os.getpid(), current_step().attempt, current_step().idempotency_key)


@step(isolation="process", max_attempts=1)
def fails(text: str) -> None:
    raise Unwell(text)


@step(isolation="process", max_attempts=2, initial_delay=0.001)
def dies_once(marker: str) -> str:
    if current_step().attempt == 1:
        os._exit(7)
    return "second"


@step(isolation="process", max_attempts=1)
def spins(marker: str) -> None:
    """Says its pid and never ends; no exception can stop it, only a kill."""
    Path(marker).write_text(str(os.getpid()))
    while True:
        try:
            time.sleep(60)
        except BaseException:
            continue


@step(isolation="process", max_attempts=1)
def unstorable() -> dict[str, object]:
    return {"here": object()}


@workflow
async def isolated_reports() -> list[Report]:
    return [await report(), await report_async()]


@workflow
async def isolated_failure() -> str:
    try:
        await fails("so so")
    except Unwell as error:
        return f"{type(error).__name__} {error}"
    return "nothing"


@workflow
async def isolated_death(marker: str) -> str:
    return await dies_once(marker)


@workflow
async def isolated_spin(marker: str, timeout: float) -> None:
    await spins.options(timeout=timeout)(marker)


@step(isolation="process", max_attempts=1)
def ends_oddly(how: str) -> None:
    if how == "exit":
        sys.exit(3)
    raise KeyboardInterrupt if how == "keyboard" else GeneratorExit


@workflow
async def isolated_odd_end(how: str) -> str:
    try:
        await ends_oddly(how)
    except Exception as error:
        return str(error)
    return "nothing"


@step(isolation="process", max_attempts=3, initial_delay=0.001)
def returns_what_cannot_be_stored(marker: str) -> Any:
    with open(marker, "a") as file:
        file.write("called\n")
    return {"pid": object()}


@workflow
async def isolated_unstorable(marker: str) -> Any:
    return await returns_what_cannot_be_stored(marker)


# -- processes that are used again ---------------------------------------------------------------------------


@step(isolation="process", max_attempts=1)
def pid_after(release: str) -> int:
    """Says its pid, and waits for a file."""
    Path(f"{release}.{os.getpid()}").touch()
    while not Path(release).exists():
        time.sleep(0.005)
    return os.getpid()


@step(isolation="process", max_attempts=1)
def pid_of_its_process() -> int:
    return os.getpid()


@step(isolation="process", max_attempts=1)
def leaves_a_thread_behind() -> int:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return os.getpid()


@step(isolation="process", max_attempts=1)
def surroundings(name: str) -> tuple[str, str]:
    return os.getcwd(), os.environ.get(name, "")


STEPS = {
    "pid": pid_of_its_process,
    "thread": leaves_a_thread_behind,
}


@workflow
async def isolated_pids(kinds: list[str]) -> list[int]:
    return [await STEPS[kind]() for kind in kinds]


@workflow
async def isolated_pids_side_by_side(releases: list[str]) -> list[int]:
    return list(await asyncio.gather(*(pid_after(release) for release in releases)))


@workflow
async def isolated_surroundings(name: str) -> tuple[str, str]:
    return await surroundings(name)
