"""The other process of `test_readable_elsewhere`: a worker, or a client that only reads."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from perdure import Engine, RunFailed, event, receive, state, status, step, workflow


@event
@dataclass
class CarryOn:
    how: str


@step(max_attempts=1)
async def breaks() -> None:
    raise ValueError("broken on purpose")


@workflow
async def readable() -> dict[str, int]:
    status({"phase": "waiting", "percent": 50})
    state["seen"] = ["a", "b"]
    how = (await receive(CarryOn)).how
    status("after")
    state["how"] = how
    if how == "fail":
        await breaks()
    return {"answer": 42}


async def worker(path: str) -> None:
    async with Engine(path):
        print("open", flush=True)
        await asyncio.Event().wait()


async def read(path: str, run_id: str) -> None:
    """A client without a worker, in a process of its own: prints what it can see, as JSON."""
    async with Engine(path, worker=False) as engine:
        view = await engine.status(run_id)
        seen: dict[str, object] = {
            "status": str(view.status),
            "custom": view.custom_status,
            "state": view.state,
            "waiting": [[wait.kind, wait.detail] for wait in view.waiting],
            "records": [entry.kind for entry in await engine.admin.history(run_id)],
        }
        if view.status.terminal:
            try:
                seen["result"] = await engine.result(run_id)
            except RunFailed as error:
                seen["error"] = [type(error.__cause__).__name__, str(error.__cause__)]
        print(json.dumps(seen), flush=True)
