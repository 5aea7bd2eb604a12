"""Child processes of the lifecycle tests: a script that is killed and run again, and an engine that is forked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

import perdure
from perdure import Engine, sleep, step, workflow
from support.effects import Effects


@step
async def counted(number: int) -> int:
    Effects(Path(os.environ["EFFECTS"])).add(f"step {number}")
    if number == 3 and not os.environ.get("FINISH"):
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@workflow
async def script_in_steps() -> int:
    total = 0
    for number in range(5):
        total += await counted(number)
        await sleep(0.001)
    return total


def script(path: str) -> None:
    print(perdure.run(script_in_steps(), store=path, id="run"), flush=True)


@workflow
async def empty_run() -> str:
    return "done"


async def forks(path: str) -> None:
    """Opens an engine, forks, and prints what the child gets when it uses it."""
    async with Engine(path) as engine:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _in_the_fork(engine)
        os.waitpid(child, 0)
        print(await (await engine.start(empty_run(), id="run")).result(), flush=True)


def _in_the_fork(engine: Engine) -> None:
    async def use() -> None:
        for call in (lambda: engine.status("run"), lambda: engine.start(empty_run()), lambda: engine.cancel("run")):
            try:
                await call()
                print("no error", flush=True)
            except perdure.PerdureError as error:
                print(type(error).__name__, flush=True)
        await engine.close()  # must not touch what belongs to the parent

    try:
        asyncio.new_event_loop().run_until_complete(use())
        print("closed", flush=True)
    except BaseException as error:
        print(f"close raised {type(error).__name__}", flush=True)
    finally:
        os._exit(0)


inside = threading.Event()


@step
def never_ends() -> None:
    print("inside", flush=True)
    inside.set()
    while True:
        time.sleep(60)


@workflow
async def stuck_in_a_thread() -> None:
    await never_ends()


async def closes_with_a_stuck_thread(path: str) -> None:
    async with Engine(path, shutdown_grace=0.05) as engine:
        await engine.start(stuck_in_a_thread(), id="run")
        await asyncio.to_thread(inside.wait)
    print("closed", flush=True)
