"""`removed`, beyond one deploy of one run (`table.py`): loops, crashes after the deploy, new runs, wrong calls."""

from __future__ import annotations

import pytest

from change.lives_of_a_file import finishes, is_idle, live_first, text_of, workflow_name
from change.versions_of_a_file import SourceFile
from events.kinds import Note
from perdure import Engine, removed, version
from perdure.errors import BadArgument, NotInWorkflow
from support.effects import Effects
from support.lives import Lives, run_async, until


def test_each_iteration_of_a_loop(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """Counted like the calls it stands for, before and after the deploy. CONFORMANCE V3."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            for turn in range(4):
                await charge()
                await notify()
                await receive(Note)
            return await ship()
        """
    new = old.replace("await notify()", 'removed("notify")')

    async def main() -> None:
        await live_first(lives, source, old, name)
        source.load(new)
        async with lives.engine() as engine:
            for number in range(4):
                await engine.send("run", Note("on"), key=str(number))
            assert await engine.result("run", timeout=10) == "shipped"

    run_async(main())
    assert effects.counts() == {"charge": 4, "notify": 1, "ship": 1}


@pytest.mark.parametrize("before", [False, True])
def test_a_new_run_over_a_crash_at_every_record(lives: Lives, source: SourceFile, before: bool) -> None:
    """For runs that never had it, it is nothing at all. CONFORMANCE V3."""
    name = workflow_name()
    module = source.load(f"""
        @workflow
        async def {name}() -> list[str]:
            removed("notify")
            first = await charge()
            removed("sleep", "timer")
            await receive(Note)
            return [first, await ship()]
        """)

    async def drive(engine: Engine, handle: object) -> None:
        await engine.send("run", Note("wake"), key="wake")

    done = run_async(lives.crash_at_every_record(module[name], drive=drive, before=before))
    assert done == ["charged", "shipped"]


def test_an_old_run_over_a_crash_after_the_deploy(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """What was passed over once is passed over by every later replay. CONFORMANCE V3."""
    name = workflow_name()
    old = text_of("await charge(); await flaky(); return await ship()", name)
    new = text_of("await charge(); removed('flaky'); await ship(); await receive(Note); return await ship()", name)

    async def main() -> None:
        await live_first(lives, source, old, name)
        source.load(new)
        engine = lives.engine()
        await engine.open()
        await engine.send("run", Note("only wakes it"), key="1")

        async def shipped() -> bool:
            return effects.counts().get("ship", 0) == 2 or await is_idle(engine, "run")

        await until(shipped)
        await lives.crash(engine)
        assert await finishes(lives, source, new, resume=False) == "shipped"

    run_async(main())
    assert effects.counts() == {"charge": 1, "flaky": 1, "ship": 2}


@pytest.mark.parametrize("wrong", ["", "a/b", "a#2", 3])
def test_what_cannot_be_a_name_is_refused(wrong: object) -> None:
    with pytest.raises(BadArgument, match="as its call had it"):
        removed(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="kind"):
        removed("a", "stair")  # type: ignore[arg-type]
    with pytest.raises(NotInWorkflow):
        removed("a")
    with pytest.raises(NotInWorkflow):
        version()
