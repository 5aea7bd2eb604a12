"""The run whose code is running: how every verb finds it, in helpers and nested tasks, without a context argument."""

from __future__ import annotations

from asyncio import events

from perdure.errors import NotInWorkflow
from perdure.kernel.eventloop.loop import RunLoop
from perdure.kernel.run import Run

_get_running_loop = events._get_running_loop


def running_run() -> Run | None:
    """The run whose code is running now, or None outside workflow code."""
    loop = _get_running_loop()
    return loop.owner if type(loop) is RunLoop else None  # type: ignore[return-value]


def current_run(verb: str) -> Run:
    run = running_run()
    if run is None:
        raise NotInWorkflow(
            f"{verb}() only works in workflow code. Outside, use the engine: engine.start, engine.send, ..."
        )
    return run
