"""`removed`: an operation that is gone from the code, while journals still speak of it."""

from __future__ import annotations

import pytest

from change.lives_of_a_file import finishes, is_idle, live_first, parks, workflow_name
from change.versions_of_a_file import SourceFile
from events.kinds import Note
from perdure import BadArgument, Engine, receive, removed, version, workflow
from perdure.errors import NotInWorkflow
from support.effects import Effects
from support.lives import Lives, run_async, until

#: What stood in the old code, what the new code says instead, and whether the old run was still waiting for it.
GONE = {
    "a step": ("await notify()", 'removed("notify")', False),
    "a step in a backoff": ("await flaky()", 'removed("flaky")', True),
    "a sleep that is over": ("await asyncio.sleep(0.001)", 'removed("sleep", "timer")', False),
    "a sleep": ("await asyncio.sleep(7200)", 'removed("sleep", "timer")', True),
    "a receive": ("await receive(Tick)", 'removed("receive", "receive")', True),
    "a child": ("await {name}_child()", 'removed("{name}_child", "child")', False),
    "a send": ('await send("friend", Tick(1))', 'removed("send", "send")', False),
    "a step with a name": ('await notify.options(name="tell")()', 'removed("tell")', False),
    "a step in a task": ("await asyncio.gather(notify(), charge(2))", 'removed("notify"); await charge(2)', False),
    "the first of two": ("await notify(); await notify()", 'removed("notify"); await notify()', False),
}


def old_and_new(name: str, case: str) -> tuple[str, str, bool]:
    before, after, pending = GONE[case]
    text = f"""
        @workflow
        async def {name}_child() -> str:
            return "grown up"

        @workflow
        async def {name}() -> str:
            await charge()
            HERE
            {"" if pending else "await receive(Note)"}
            return await ship()
        """
    return text.replace("HERE", before.format(name=name)), text.replace("HERE", after.format(name=name)), pending


@pytest.mark.parametrize("case", GONE)
def test_records_of_a_removed_operation_are_passed_over(
    lives: Lives, source: SourceFile, effects: Effects, case: str
) -> None:
    """CONFORMANCE V3: the open run goes on without it, whether it was past it or still waiting; a pending one is
    withdrawn, and nothing runs twice."""
    name = workflow_name()
    old, new, _ = old_and_new(name, case)

    async def main() -> None:
        await live_with_friend(lives, source, old, name)
        assert await finishes(lives, source, new, resume=False) == "shipped"

    run_async(main())
    counts = effects.counts()
    assert counts["ship"] == 1
    assert all(count == 1 or what in ("charge", "notify") for what, count in counts.items()), counts
    assert counts["charge"] == (2 if "task" in case else 1)
    assert counts.get("notify", 0) == (
        2 if case == "the first of two" else "notify()" in GONE[case][0] or "tell" in old
    )


async def live_with_friend(lives: Lives, source: SourceFile, old: str, name: str) -> None:
    """Like `live_first`, with somebody there to send to."""
    module = source.load(old)
    engine = lives.engine()
    await engine.open()
    await engine.start(waits_for_a_note(), id="friend")
    await engine.start(module[name](), id="run")

    async def idle() -> bool:
        view = await engine.status("run")
        return view.status == "waiting" and bool(view.waiting) and view.waiting[0].kind != "child" and view.records >= 2

    await until(idle)
    if "asyncio.sleep(0.001)" in old:
        await until(lambda: is_idle(engine, "run"))
    assert (await engine.status("friend")).status == "waiting"
    await lives.crash(engine)


@workflow
async def waits_for_a_note() -> None:
    await receive(Note)


def test_each_iteration_of_a_loop(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V3: counted like the calls it stands for, before and after the deploy."""
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
    """CONFORMANCE V3: for runs that never had it, it is nothing at all."""
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
    """CONFORMANCE V3: what was passed over once is passed over by every later replay."""
    name = workflow_name()
    old, new, _ = old_and_new(name, "a step in a backoff")
    new = new.replace("return await ship()", "await ship(); await receive(Note); return await ship()")

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


def test_removed_and_still_called_is_a_clear_error(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """Bad input: parked before any side effect, with both lines; nothing is lost."""
    name = workflow_name()
    old, new, _ = old_and_new(name, "a step")
    wrong = new.replace('removed("notify")', 'removed("notify"); await notify()')

    async def main() -> None:
        await live_first(lives, source, old, name)
        reason = await parks(lives, source, wrong, effects)
        assert "removed('notify') in orders.py:" in reason
        assert "drop one of the two" in reason
        assert await finishes(lives, source, new, resume=True) == "shipped"

    run_async(main())
    assert effects.counts() == {"charge": 1, "notify": 1, "ship": 1}


def test_something_else_that_vanished_with_it_is_noticed(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """V1: two waits were pending; one is declared removed, the other is just gone."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await asyncio.gather(receive(Note), flaky(), asyncio.sleep(7200))
            return await ship()
        """
    new = old.replace("receive(Note), flaky(), asyncio.sleep(7200)", "receive(Note)")
    told = new.replace("await asyncio.gather", 'removed("flaky"); removed("sleep", "timer"); await asyncio.gather')

    async def main() -> None:
        await live_first(lives, source, old, name)
        half = told.replace('removed("sleep", "timer"); ', "")
        assert "timer 'sleep'" in await parks(lives, source, half, effects)
        assert await finishes(lives, source, told, resume=True) == "shipped"

    run_async(main())
    assert effects.counts() == {"charge": 1, "flaky": 1, "ship": 1}


def test_the_wrong_kind_removes_nothing(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """V1: a declaration that does not fit the journal is a divergence like any other."""
    name = workflow_name()
    old, new, _ = old_and_new(name, "a step")

    async def main() -> None:
        await live_first(lives, source, old, name)
        assert "Diverged" in await parks(
            lives, source, new.replace('removed("notify")', 'removed("notify", "child")'), effects
        )

    run_async(main())


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
