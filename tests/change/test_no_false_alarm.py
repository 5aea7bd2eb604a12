"""Changes that do not matter never disturb an open run."""

from __future__ import annotations

import pytest

from change.lives_of_a_file import finishes, live_first, workflow_name
from change.versions_of_a_file import SourceFile
from support.effects import Effects
from support.lives import Lives, run_async

OLD = """
    async def pay(cents):
        receipt = await charge(cents)
        return receipt

    async def prepare() -> None:
        await reserve()
        await notify()

    @workflow
    async def NAME() -> str:
        receipt = await pay(5)
        await asyncio.gather(prepare(), notify())
        async with asyncio.timeout(3600):
            await receive(Note)
        return await ship()
    """

HARMLESS = {
    "comments and blank lines": """
        # a comment in front


        async def pay(cents):
            # why
            receipt = await charge(cents)

            return receipt

        async def prepare() -> None:
            await reserve()  # first
            await notify()

        @workflow
        async def NAME() -> str:
            '''A docstring.'''
            receipt = await pay(5)

            # both at once
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            return await ship()
        """,
    "helpers moved and renamed": """
        @workflow
        async def NAME() -> str:
            receipt = await collect_money(5)
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            return await ship()

        async def prepare() -> None:
            await reserve()
            await notify()

        async def collect_money(cents):
            return await charge(cents)
        """,
    "a helper inlined": """
        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            await charge(5)
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            return await ship()
        """,
    "variables renamed": """
        async def pay(amount):
            paper = await charge(amount)
            return paper

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            slip = await pay(5)
            both = await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                note = await receive(Note)
            return await ship()
        """,
    "code after the current wait changed": """
        async def pay(cents):
            receipt = await charge(cents)
            return receipt

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            receipt = await pay(5)
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            await reserve()
            await sleep(0.001)
            return await ship()
        """,
    "TaskGroup instead of gather": """
        async def pay(cents):
            return await charge(cents)

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            receipt = await pay(5)
            async with asyncio.TaskGroup() as group:
                group.create_task(prepare())
                group.create_task(notify())
            async with asyncio.timeout(3600):
                await receive(Note)
            return await ship()
        """,
    "a try around it": """
        async def pay(cents):
            return await charge(cents)

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            try:
                receipt = await pay(5)
                await asyncio.gather(prepare(), notify())
                async with asyncio.timeout(3600):
                    await receive(Note)
            except LookupError:
                return "lost"
            return await ship()
        """,
    "other options of a step": """
        async def pay(cents):
            return await charge.options(max_attempts=9, timeout=60)(cents)

        async def prepare() -> None:
            await reserve()
            await notify()

        @workflow
        async def NAME() -> str:
            receipt = await pay(5)
            await asyncio.gather(prepare(), notify())
            async with asyncio.timeout(7200):
                await receive(Note)
            return await ship()
        """,
}


@pytest.mark.parametrize("change", HARMLESS)
def test_a_harmless_change_never_disturbs_an_open_run(
    lives: Lives, source: SourceFile, effects: Effects, change: str
) -> None:
    """CONFORMANCE V2: the run goes on with the new text and no recorded step runs again."""
    name = workflow_name()
    old, new = OLD.replace("NAME", name), HARMLESS[change].replace("NAME", name)

    async def main() -> None:
        await live_first(lives, source, old, name)
        before = effects.counts()
        assert await finishes(lives, source, new, resume=False) == "shipped"
        after = effects.counts()
        extra = {"ship": 1, "reserve": 1} if change.startswith("code after") else {"ship": 1}
        assert {key: after[key] - before[key] for key in after if after[key] != before[key]} == extra

    run_async(main())


def test_completed_nested_scopes_are_no_alarm(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V2: timeouts, groups and tries that were left before the wait leave nothing to compare."""
    name = workflow_name()
    text = f"""
        @workflow
        async def {name}() -> str:
            async with asyncio.timeout(3600):
                async with asyncio.TaskGroup() as group:
                    group.create_task(charge())
                    group.create_task(reserve())
            try:
                async with asyncio.timeout(0.001):
                    await receive(Stop)
            except TimeoutError:
                await notify()
            await asyncio.wait({{asyncio.create_task(charge()), asyncio.create_task(receive(Stop))}},
                               return_when=asyncio.FIRST_COMPLETED)
            await receive(Note)
            return await ship()
        """

    async def main() -> None:
        await live_first(lives, source, text, name)
        assert await finishes(lives, source, text, resume=False, above="# moved down\n\n") == "shipped"

    run_async(main())


def test_every_life_may_edit_comments(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V2: five deploys that only move lines, a run that wakes in each."""
    name = workflow_name()
    text = f"""
        @workflow
        async def {name}() -> str:
            for _ in range(4):
                await charge()
                await receive(Note)
            return await ship()
        """

    async def main() -> None:
        from change.lives_of_a_file import is_idle
        from events.kinds import Note
        from support.lives import until

        await live_first(lives, source, text, name)
        for life in range(4):
            source.load(text, above="# comment\n" * (life + 1))
            async with lives.engine() as engine:
                await engine.send("run", Note("wake"), key=str(life))
                if life == 3:
                    assert await engine.result("run", timeout=10) == "shipped"
                    break

                async def further(engine=engine, life=life) -> bool:  # type: ignore[no-untyped-def]
                    return (await engine.status("run")).records >= 2 * life + 4 and await is_idle(engine, "run")

                await until(further)
        assert effects.counts() == {"charge": 4, "ship": 1}

    run_async(main())
