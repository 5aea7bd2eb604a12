"""What the child processes of the step tests run: workers that are killed, or kill themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import perdure
from perdure import Engine, current_step, sleep, step, workflow
from support.effects import Effects


def _effects() -> Effects:
    return Effects(Path(os.environ["EFFECTS"]))


@step(max_attempts=4, initial_delay=0.4, factor=1, jitter=0)
async def fails_twice() -> int:
    context = current_step()
    _effects().add(f"{context.attempt} {context.idempotency_key}")
    print(f"attempt {context.attempt}", flush=True)
    if context.attempt < 3:
        raise ValueError(f"attempt {context.attempt}")
    return context.attempt


@workflow
async def retried_over_kills() -> int:
    return await fails_twice()


@step
async def kills_its_process() -> str:
    _effects().add(f"poison {current_step().attempt}")
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@workflow
async def poisonous() -> str:
    return await kills_its_process()


@step
async def harmless(number: int) -> int:
    _effects().add(f"harmless {number}")
    return number


@workflow
async def beside_poison() -> int:
    total = 0
    for number in range(3):
        total += await harmless(number)
        await sleep(0.01)
    return total


@step
async def hangs() -> str:
    context = current_step()
    _effects().add(f"{context.attempt} {context.idempotency_key}")
    print("inside", flush=True)
    if os.environ.get("FINISH"):
        return context.idempotency_key
    await asyncio.Event().wait()
    return ""


@workflow
async def killed_in_a_step() -> list[str]:
    return [await hangs(), await hangs()]


@step
async def exits(how: str) -> str:
    _effects().add(f"{how} {current_step().attempt}")
    if os.environ.get("FINISH"):
        return "finished"
    if how == "exit":
        sys.exit(3)
    raise KeyboardInterrupt


@step
def exits_in_a_thread() -> str:
    _effects().add(f"thread {current_step().attempt}")
    if os.environ.get("FINISH"):
        return "finished"
    sys.exit(3)


@workflow
async def interrupted(how: str) -> str:
    return await (exits_in_a_thread() if how == "thread" else exits(how))


WORKFLOWS = {
    "retried_over_kills": retried_over_kills,
    "killed_in_a_step": killed_in_a_step,
}


async def live(path: str, name: str) -> None:
    """Start a run under the name of its workflow, if it is new, and print what becomes of it."""
    async with Engine(path, sweep_interval=0.02) as engine:
        handle = await engine.start(WORKFLOWS[name](), id=name)  # type: ignore[operator]
        print("open", flush=True)
        print(f"{handle.id} {await handle.result()}", flush=True)


async def work(path: str) -> None:
    """A worker that starts nothing of its own."""
    async with Engine(path, sweep_interval=0.02, recoveries_max=2):
        print("open", flush=True)
        await asyncio.Event().wait()


def interrupted_script(path: str, how: str) -> None:
    print(perdure.run(interrupted(how), store=path, id="run"), flush=True)
