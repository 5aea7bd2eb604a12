"""`patched`, beyond one deploy of one run (`table.py`): what was chosen is kept over crashes and later deploys."""

from __future__ import annotations

from change.lives_of_a_file import finishes, is_idle, live_first, workflow_name
from change.versions_of_a_file import SourceFile
from events.kinds import Note
from perdure import Engine
from support.effects import Effects
from support.lives import Lives, run_async, until


def test_a_new_run_takes_the_new_way_over_a_crash_at_every_record(
    lives: Lives, source: SourceFile, effects: Effects
) -> None:
    """The choice is recorded; every replay makes the same one. CONFORMANCE V3."""
    name = workflow_name()
    text = f"""
        @workflow
        async def {name}() -> list[str]:
            taken = []
            if patched("reserve-first"):
                taken.append(await reserve())
            taken.append(await charge())
            await receive(Note)
            return [*taken, await ship()]
        """
    module = source.load(text)

    async def drive(engine: Engine, handle: object) -> None:
        await engine.send("run", Note("wake"), key="wake")

    way = ["reserved", "charged", "shipped"]
    for before in (False, True):
        assert run_async(lives.crash_at_every_record(module[name], drive=drive, before=before)) == way


def test_a_change_behind_the_current_wait_takes_the_new_way(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """The old run has not been there yet, so it may go the new way; and keeps to it. CONFORMANCE V3."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """
    new = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await receive(Note)
            if patched("tell-them"):
                await notify()
                await receive(Stop)
            return await ship()
        """

    async def main() -> None:
        await live_first(lives, source, old, name)
        source.load(new)
        engine = lives.engine()
        await engine.open()
        await engine.send("run", Note("wake"))

        async def told() -> bool:
            return (await engine.status("run")).records >= 5

        await until(told)
        await lives.crash(engine)
        async with lives.engine() as engine:
            from events.kinds import Stop

            await engine.send("run", Stop())
            assert await engine.result("run", timeout=10) == "shipped"

    run_async(main())
    assert effects.counts() == {"charge": 1, "notify": 1, "ship": 1}


def test_each_iteration_of_a_loop_decides_for_itself(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """Iterations before the deploy the old way, those after it the new way. CONFORMANCE V3."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            for _ in range(4):
                await charge()
                await receive(Note)
            return await ship()
        """
    new = f"""
        @workflow
        async def {name}() -> str:
            for _ in range(4):
                if patched("reserve-too"):
                    await reserve()
                await charge()
                await receive(Note)
            return await ship()
        """

    async def main() -> None:
        await live_first(lives, source, old, name)
        for life, records in enumerate((6, 9, 12)):
            source.load(new)
            engine = lives.engine()
            await engine.open()
            await engine.send("run", Note("wake"), key=str(life))

            async def further(engine: Engine = engine, records: int = records) -> bool:
                return (await engine.status("run")).records >= records and await is_idle(engine, "run")

            await until(further)
            await lives.crash(engine)
        assert await finishes(lives, source, new, resume=False) == "shipped"

    run_async(main())
    assert effects.counts() == {"charge": 4, "reserve": 3, "ship": 1}


def test_two_patches_in_a_loop_deployed_one_after_the_other(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """Each iteration keeps the way it took, whatever is deployed after it. CONFORMANCE V3."""
    name = workflow_name()
    texts = [
        f"""
        @workflow
        async def {name}() -> str:
            for _ in range(4):
                {first}
                await charge()
                {second}
                await receive(Note)
            return await ship()
        """
        for first, second in (
            ("pass", "pass"),
            ('if patched("one"): await reserve()', "pass"),
            ('if patched("one"): await reserve()', 'if patched("two"): await notify()'),
        )
    ]

    async def main() -> None:
        await live_first(lives, source, texts[0], name)
        for life, (text, waits) in enumerate(((texts[1], 2), (texts[2], 3), (texts[2], 4))):
            source.load(text)
            engine = lives.engine()
            await engine.open()
            await engine.send("run", Note("on"), key=str(life))

            async def at_wait(engine: Engine = engine, waits: int = waits) -> bool:
                places = [wait.location for wait in (await engine.status("run")).waiting]
                return places == [f"receive#{waits}"] and await is_idle(engine, "run")

            await until(at_wait)
            await lives.crash(engine)
        assert await finishes(lives, source, texts[2], resume=False) == "shipped"

    run_async(main())
    assert effects.counts() == {"charge": 4, "reserve": 3, "notify": 2, "ship": 1}
