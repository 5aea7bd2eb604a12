"""`Admin(store)`: the same object and the same calls without an engine."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

from perdure import RunNotFound, event, receive, workflow
from perdure.admin import Admin
from perdure.errors import EngineNotOpen
from perdure.store.model import Status
from support.lives import Lives, run_async


@event
@dataclass(frozen=True)
class Hello:
    text: str


@workflow
async def greeted() -> str:
    return (await receive(Hello)).text


def test_people_need_no_engine(lives: Lives) -> None:
    """What a web page or a script does on a store alone is found by the worker that comes later."""

    async def main() -> None:
        async with lives.engine(worker=False) as client:
            await client.start(greeted(), id="run")
        store = lives.store()
        await store.open()
        admin = Admin(store)
        assert (await admin.status("run")).status is Status.PENDING
        assert await admin.pause("run", "ann")
        assert (await admin.why("run")).kind == "paused"
        assert await admin.unpause("run")
        copy = await admin.fork("run")
        assert sorted(view.id for view in await admin.list()) == sorted(["run", copy])
        assert await admin.terminate(copy)
        await admin.send_json("run", "Hello", b'{"text":"hello"}')
        assert await admin.counts() == {Status.PENDING: 1, Status.CANCELLED: 1}
        assert await admin.prune("0 s", dry_run=True) == 1
        await admin.delete(copy)
        with pytest.raises(RunNotFound):
            await admin.status(copy)
        await store.close()
        async with lives.engine() as engine:
            assert await engine.result("run", timeout=10) == "hello"

    run_async(main())


def test_an_engine_that_is_closed_has_an_admin_that_says_so(lives: Lives) -> None:
    """A caller that kept the object hears the same as from the engine."""

    async def main() -> None:
        engine = lives.engine()
        admin = engine.admin
        with pytest.raises(EngineNotOpen, match="not open yet"):
            await admin.status("run")
        async with engine:
            await engine.start(greeted(), id="run")
            assert (await admin.status("run")).id == "run"
        with pytest.raises(EngineNotOpen, match="closed"):
            await admin.resume("run")
        with pytest.raises(EngineNotOpen, match="closed"):
            admin.check()

    run_async(main())


def test_every_call_is_documented() -> None:
    """One object for programs, the CLI and a web page: what it offers can be read in one place."""
    calls = [function for name, function in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")]
    assert len(calls) >= 25
    assert [function.__name__ for function in calls if not function.__doc__] == []
