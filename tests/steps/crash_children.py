"""What the child processes of the step tests run: workers that are killed, or kill themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

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
    if not os.environ.get("QUIET"):
        print("inside", flush=True)
    if os.environ.get("FINISH"):
        return context.idempotency_key
    await asyncio.Event().wait()
    return ""


@workflow
async def hangs_once() -> str:
    return await hangs()


@workflow
async def killed_in_a_step() -> list[str]:
    return [await hangs(), await hangs()]


@step
async def spins() -> str:
    """Keeps the main thread busy, where Python calls the handlers of signals."""
    attempt = current_step().attempt
    _effects().add(f"struck {attempt}")
    if os.environ.get("FINISH"):
        return f"finished at attempt {attempt}"
    print("inside", flush=True)
    while True:
        pass


@workflow
async def struck_in_a_step() -> str:
    return await spins()


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


async def _struck(path: str) -> None:
    async with Engine(path, sweep_interval=0.02, shutdown_grace=0.1) as engine:
        print(await (await engine.start(struck_in_a_step(), id="run")).result(), flush=True)


def struck(path: str, how: str) -> None:
    """A signal comes while a step keeps the main thread busy: to asyncio.run, to a plain loop, to a handler."""
    if how == "handler":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if how == "default":
            asyncio.new_event_loop().run_until_complete(_struck(path))
        else:
            with asyncio.Runner() as runner:
                if how == "runner":
                    _say_first_interrupt(runner)
                runner.run(_struck(path))
    except (KeyboardInterrupt, SystemExit):
        print("gone", flush=True)
        os._exit(0)


def _say_first_interrupt(runner: asyncio.Runner) -> None:
    original = runner._on_sigint  # type: ignore[attr-defined]

    def on_sigint(*args: object, **kwargs: object) -> None:
        original(*args, **kwargs)
        print("first", flush=True)

    runner._on_sigint = on_sigint  # type: ignore[attr-defined]


async def ends_early(path: str, how: str) -> None:
    """Starts a run, and leaves without closing the engine."""
    engine = Engine(path, sweep_interval=0.02, shutdown_grace=0.1)
    await engine.open()
    await engine.start(hangs_once(), id="run")
    while not _effects().lines():
        await asyncio.sleep(0.01)
    print("ending", flush=True)
    match how:
        case "error":
            raise ValueError("a bug of main")
        case "interrupt":
            raise KeyboardInterrupt
        case "exit":
            sys.exit(3)
        case "task":
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0.05)


async def finishes(path: str) -> None:
    async with Engine(path, sweep_interval=0.02) as engine:
        await engine.result("run", timeout=20)
        print([entry.kind for entry in await engine.admin.history("run")], flush=True)
