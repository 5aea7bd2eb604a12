"""Changed code is noticed before any side effect: the run is parked, and goes on when the code is restored."""

from __future__ import annotations

import re

import pytest

from change.lives_of_a_file import finishes, live_first, parks, workflow_name
from change.versions_of_a_file import SourceFile
from support.effects import Effects
from support.lives import Lives, run_async

#: name -> (version A, version B, what the journal side says, what the code side says)
CHANGES = {
    "renamed at root": (
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await reserve()
            await receive(Note)
            return await ship()
        """,
        "step 'charge'",
        "step 'reserve'",
    ),
    "reordered at root": (
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await reserve()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await reserve()
            await charge()
            await receive(Note)
            return await ship()
        """,
        "step 'charge'",
        "step 'reserve'",
    ),
    "inserted in front": (
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await reserve()
            await charge()
            await receive(Note)
            return await ship()
        """,
        "step 'charge'",
        "step 'reserve'",
    ),
    "inserted before the current wait": (
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await notify()
            await receive(Note)
            return await ship()
        """,
        "receive 'receive'",
        "step 'notify'",
    ),
    "removed from the middle": (
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await reserve()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """,
        "step 'reserve'",
        "receive 'receive'",
    ),
    "removed current wait": (
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await charge()
            return await ship()
        """,
        "receive 'receive'",
        "step 'ship'",
    ),
    "a step became a sleep": (
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await sleep(3600, name="charge")
            await receive(Note)
            return await ship()
        """,
        "step 'charge'",
        "timer 'charge'",
    ),
    "a received event of another type": (
        """
        @workflow
        async def NAME() -> str:
            await send(info().id, Tick(1))
            await receive(Tick)
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await send(info().id, Tick(1))
            await receive(Stop)
            await receive(Note)
            return await ship()
        """,
        "receive 'receive'",
        "receive 'receive' of 'tests.stop'",
    ),
    "the wait became a step": (
        """
        @workflow
        async def NAME() -> str:
            await charge()
            await receive(Note, name="ship")
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            await charge()
            return await ship()
        """,
        "receive 'ship'",
        "step 'ship'",
    ),
    "renamed in a loop": (
        """
        @workflow
        async def NAME() -> str:
            for _ in range(3):
                await charge()
                await reserve()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            for _ in range(3):
                await charge()
                await notify()
            await receive(Note)
            return await ship()
        """,
        "step 'reserve'",
        "step 'notify'",
    ),
    "one iteration less": (
        """
        @workflow
        async def NAME() -> str:
            for _ in range(3):
                await charge()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            for _ in range(2):
                await charge()
            await receive(Note)
            return await ship()
        """,
        "step 'charge#3'",
        "receive 'receive'",
    ),
    "renamed in a branch of gather": (
        """
        async def pay() -> None:
            await charge()
            await reserve()

        @workflow
        async def NAME() -> str:
            await asyncio.gather(pay(), notify())
            await receive(Note)
            return await ship()
        """,
        """
        async def pay() -> None:
            await charge()
            await ship()

        @workflow
        async def NAME() -> str:
            await asyncio.gather(pay(), notify())
            await receive(Note)
            return await ship()
        """,
        "step 'pay/reserve'",
        "step 'pay/ship'",
    ),
    "renamed in a created task": (
        """
        @workflow
        async def NAME() -> str:
            task = asyncio.create_task(charge())
            await task
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            task = asyncio.create_task(reserve())
            await task
            await receive(Note)
            return await ship()
        """,
        "step 'charge'",
        "step 'reserve'",
    ),
    "removed from a try": (
        """
        @workflow
        async def NAME() -> str:
            try:
                await charge()
                await reserve()
            except Exception:
                await notify()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            try:
                await reserve()
            except Exception:
                await notify()
            await receive(Note)
            return await ship()
        """,
        "step 'charge'",
        "step 'reserve'",
    ),
    "renamed in a try that catches everything": (
        """
        @workflow
        async def NAME() -> str:
            try:
                await charge()
            except BaseException:
                await notify()
            await receive(Note)
            return await ship()
        """,
        """
        @workflow
        async def NAME() -> str:
            try:
                await reserve()
            except BaseException:
                await notify()
            await receive(Note)
            return await ship()
        """,
        "step 'charge'",
        "step 'reserve'",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_operation_parks_the_run_and_restoring_the_code_finishes_it(
    lives: Lives, source: SourceFile, effects: Effects, change: str
) -> None:
    """CONFORMANCE V1, FAULTS D1, D2, D3: no side effect, both sides with file and line, then `resume`."""
    name = workflow_name()
    old, new, journal_side, code_side = CHANGES[change]
    old, new = old.replace("NAME", name), new.replace("NAME", name)

    async def main() -> None:
        await live_first(lives, source, old, name)
        reason = await parks(lives, source, new, effects)
        check_report(reason, journal_side, code_side)
        assert await finishes(lives, source, old, resume=True) == "shipped"

    run_async(main())
    assert effects.counts()["ship"] == 1, "the only step behind the wait"


def check_report(reason: str, journal_side: str, code_side: str) -> None:
    """The shape of the example in STYLE.md."""
    lines = reason.splitlines()
    assert re.fullmatch(r"Diverged: run 'run' no longer matches its journal (at|after) record \d+\.", lines[0]), reason
    moment = r"\((recorded|waiting since) \d{4}-\d\d-\d\d \d\d:\d\dZ, orders\.py:\d+\)"
    assert re.fullmatch(rf"  journal: {re.escape(journal_side)}.*\s+{moment}", lines[1]), reason
    assert re.fullmatch(rf"  code:    {re.escape(code_side)}.*\s+\(orders\.py:\d+\)", lines[2]), reason
    assert "nothing was lost" in reason
    assert "perdure resume run" in reason
    assert lines[-1].rstrip().endswith("[P-101]"), reason


def test_the_report_names_both_source_lines(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V1: the recorded line is of the old file, the other of the new one."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """
    new = f"""
        # a comment

        @workflow
        async def {name}() -> str:
            await reserve()
            await receive(Note)
            return await ship()
        """

    async def main() -> None:
        await live_first(lives, source, old, name)
        recorded = source.line_of("await charge()")
        reason = await parks(lives, source, new, effects)
        assert f"orders.py:{recorded})" in reason.splitlines()[1]
        assert f"(orders.py:{source.line_of('await reserve()')})" in reason.splitlines()[2]

    run_async(main())


def test_ending_early_with_records_left_over_parks(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V1, FAULTS D4: the report says how many records are left."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await reserve()
            await notify()
            await receive(Note)
            return await ship()
        """
    new = f"""
        @workflow
        async def {name}() -> str:
            return await charge()
        """

    async def main() -> None:
        await live_first(lives, source, old, name)
        reason = await parks(lives, source, new, effects)
        assert "step 'reserve' and 1 more" in reason
        assert "ended" in reason.splitlines()[2]
        assert await finishes(lives, source, old, resume=True) == "shipped"

    run_async(main())


def test_ending_early_instead_of_the_current_wait_parks(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V1, FAULTS D4: no record is left over, but the run waited for something and now just ends."""
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
            return await charge()
        """

    async def main() -> None:
        await live_first(lives, source, old, name)
        reason = await parks(lives, source, new, effects)
        assert "receive 'receive'" in reason
        assert await finishes(lives, source, old, resume=True) == "shipped"

    run_async(main())


def test_a_change_while_in_a_backoff_parks(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V1, S2: the run waits for the next attempt of a step that the new code does not have."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await flaky()
            return await ship()
        """
    new = old.replace("flaky()", "reserve()")

    async def main() -> None:
        await live_first(lives, source, old, name)
        reason = await parks_without_event(lives, source, new, effects)
        assert "step 'flaky'" in reason
        assert "step 'reserve'" in reason

    run_async(main())


def test_a_change_while_asleep_parks(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V1: the sleep became a receive."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await sleep(3600)
            return await ship()
        """
    new = old.replace("sleep(3600)", "receive(Stop)")

    async def main() -> None:
        await live_first(lives, source, old, name)
        reason = await parks(lives, source, new, effects)
        assert "timer 'sleep'" in reason
        assert "receive 'receive' of 'tests.stop'" in reason

    run_async(main())


def test_a_receive_of_another_type_parks_while_it_waits(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V1: the same place in the code now waits for something else; the event sent meanwhile is kept."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """
    new = old.replace("receive(Note)", "receive(Stop)")

    async def main() -> None:
        await live_first(lives, source, old, name)
        reason = await parks(lives, source, new, effects)
        assert "receive 'receive' of 'tests.note'" in reason
        assert "receive 'receive' of 'tests.stop'" in reason
        assert await finishes(lives, source, old.replace("(Note)", "(Note, Stop)"), resume=True) is not None

    run_async(main())


async def parks_without_event(lives: Lives, source: SourceFile, new: str, effects: Effects) -> str:
    """An event nobody reads still makes the run due: that is how a waiting run is loaded."""
    return await parks(lives, source, new, effects)


def test_another_run_is_not_disturbed(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """CONFORMANCE V1, law 8: only the run that diverged is parked; a new one runs the new code."""
    name = workflow_name()
    old = f"""
        @workflow
        async def {name}() -> str:
            await charge()
            await receive(Note)
            return await ship()
        """
    new = old.replace("charge", "reserve")

    async def main() -> None:
        await live_first(lives, source, old, name)
        await parks(lives, source, new, effects)
        module = source.load(new)
        async with lives.engine() as engine:
            from events.kinds import Note

            other = await engine.start(module[name](), id="other")
            await other.send(Note("go"))
            assert await other.result() == "shipped"

    run_async(main())
