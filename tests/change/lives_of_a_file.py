"""What the tests of changed code share: a first life on version A, a second on version B, a third on A again."""

from __future__ import annotations

import itertools
import textwrap
from typing import Any

import pytest

from change.versions_of_a_file import SourceFile
from events.kinds import Note
from perdure import Engine, receive, workflow
from perdure.errors import RunParked
from perdure.types import Status
from support.effects import Effects
from support.lives import Lives, until

_numbers = itertools.count(1)


def workflow_name() -> str:
    """Tests share one registry, and their files have different paths: each needs a name of its own."""
    return f"order_{next(_numbers)}"


def text_of(text: str, name: str) -> str:
    """A module from a text of the table, with the name of the workflow in it."""
    text = textwrap.dedent(text).strip("\n")
    if "@workflow" not in text:
        text = "@workflow\nasync def NAME() -> str:\n" + textwrap.indent(text, "    ")
    return text.replace("NAME", name) + "\n"


@workflow
async def waits_for_a_note() -> None:
    """Somebody to send to."""
    await receive(Note)


async def is_idle(engine: Engine, run_id: str, waits_for: str = "") -> bool:
    """Whether the run has come to its long wait: for the event named, or else for a note, an hour, a backoff."""
    view = await engine.status(run_id)
    if view.status is not Status.WAITING:
        return False
    if waits_for:
        return any(waits_for in wait.detail for wait in view.waiting)
    return any("tests.note" in wait.detail or wait.until is not None for wait in view.waiting)


async def live_first(lives: Lives, source: SourceFile, old: str, name: str, waits_for: str = "") -> None:
    """Run version A until it waits, then crash."""
    module = source.load(old)
    engine = lives.engine()
    await engine.open()
    if "friend" in old:
        await engine.start(waits_for_a_note(), id="friend")
    await engine.start(module[name](), id="run")
    await until(lambda: is_idle(engine, "run", waits_for))
    await lives.crash(engine)


async def parks(lives: Lives, source: SourceFile, new: str, effects: Effects) -> str:
    """Version B claims the run and parks it before any side effect; returns the reason."""
    before = effects.lines()
    source.load(new)
    async with lives.engine() as engine:
        await engine.send("run", Note("wake"), key="wake")
        with pytest.raises(RunParked):
            await engine.get("run").result(timeout=10)
        view = await engine.status("run")
        assert view.status is Status.PARKED
        assert view.reason is not None
        assert effects.lines() == before, "a side effect before the divergence was noticed"
        return view.reason


async def finishes(lives: Lives, source: SourceFile, text: str, *, resume: bool, above: str = "") -> Any:
    """A later life with this text; `resume` for a run that was parked."""
    source.load(text, above=above)
    async with lives.engine() as engine:
        if resume:
            assert await engine.admin.resume("run")
        await engine.send("run", Note("wake"), key="wake")
        return await engine.result("run", timeout=10)
