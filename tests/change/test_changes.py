"""What becomes of a run whose code is changed while it is under way: every line of the table in `table.py`."""

from __future__ import annotations

import re

import pytest

from change.lives_of_a_file import finishes, is_idle, live_first, parks, text_of, workflow_name
from change.table import CHARGED, RESTORED, TABLE, GoesOn, Parks
from change.versions_of_a_file import SourceFile
from events.kinds import Note
from perdure import Engine
from perdure.errors import Diverged
from perdure.kernel.divergence import ended_early
from perdure.kernel.journal import Record
from perdure.kernel.operations.timer import TimerFired
from support.effects import Effects
from support.lives import Lives, run_async, until

#: The first line of every report: which run, and where.
HEADLINE = r"Diverged: run 'run' no longer matches its journal (at|after) record \d+\."
#: Where and when the journal got what it says. Source lines that the code side names are those of the text after.
RECORDED = r"\((recorded|waiting since) \d{4}-\d\d-\d\d \d\d:\d\dZ, orders\.py:(\d+)\)"


@pytest.mark.parametrize("change", TABLE)
def test_a_run_under_way_goes_on_or_is_parked_before_any_side_effect(
    lives: Lives, source: SourceFile, effects: Effects, change: str
) -> None:
    """A run goes on over a change that its journal does not speak of, and repeats no step. Any other change parks it
    before a side effect, with both sides, their lines and the way out; then it goes on where it was.

    CONFORMANCE V1, V2, V3, S2; FAULTS D1, D2, D3, D4.
    """
    name = workflow_name()
    row = TABLE[change]
    before, after, verdict = text_of(row.before, name), text_of(row.after, name), row.verdict

    async def is_parked(verdict: Parks) -> None:
        recorded = source.line_of(verdict.journal_at) if verdict.journal_at else None
        reason = await parks(lives, source, after, effects)
        check_report(reason, verdict, recorded, source.line_of(verdict.code_at) if verdict.code_at else None)
        if verdict.then is not None:
            text = before if verdict.then == RESTORED else text_of(verdict.then, name)
            assert await finishes(lives, source, text, resume=True) == "shipped"
            assert effects.counts()["ship"] == 1, "the only step behind the wait"

    async def goes_on(verdict: GoesOn) -> None:
        if verdict.crashes:
            source.load(after)
            engine = await lives.engine().open()
            await until(lambda: is_idle(engine, "run"))
            await lives.crash(engine)
        assert await finishes(lives, source, after, resume=False) == "shipped"

    async def main() -> None:
        await live_first(lives, source, before, name, row.waits_for)
        await (is_parked(verdict) if isinstance(verdict, Parks) else goes_on(verdict))

    run_async(main())
    if verdict.effects is not None:
        assert effects.counts() == verdict.effects


def check_report(reason: str, verdict: Parks, recorded: int | None, changed: int | None) -> None:
    """What people read: the run and the record, the journal's side, the code's side, the way out, the code."""
    first, journal, code, *_, last = reason.splitlines()
    assert re.fullmatch(HEADLINE, first), reason
    told = re.fullmatch(rf"  journal: {re.escape(verdict.journal)}.*\s+{RECORDED}", journal)
    assert told, reason
    assert code.startswith("  code:    "), reason
    assert verdict.code in code, reason
    if verdict.code.partition(" ")[0] in ("step", "receive", "timer"):
        assert re.fullmatch(rf"  code:    {re.escape(verdict.code)}.*\s+\(orders\.py:\d+\)", code), reason
    assert recorded in (None, int(told[2])), reason
    assert changed is None or code.endswith(f"(orders.py:{changed})"), reason
    assert "nothing was lost" in reason
    assert "perdure resume run" in reason
    assert all(advice in reason for advice in verdict.advice), reason
    assert last.rstrip().endswith(f"[{verdict.error}]"), reason


def test_another_run_is_not_disturbed(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """Only the run that diverged is parked; a new one runs the new code. CONFORMANCE V1, law 8."""
    name = workflow_name()
    new = text_of(CHARGED.replace("charge", "reserve"), name)

    async def main() -> None:
        await live_first(lives, source, text_of(CHARGED, name), name)
        await parks(lives, source, new, effects)
        module = source.load(new)
        async with lives.engine() as engine:
            other = await engine.start(module[name](), id="other")
            await other.send(Note("go"))
            assert await other.result() == "shipped"

    run_async(main())


def test_every_life_may_edit_comments(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """Five deploys that only move lines, a run that wakes in each. CONFORMANCE V2."""
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
        await live_first(lives, source, text, name)
        for life in range(4):
            source.load(text, above="# comment\n" * (life + 1))
            async with lives.engine() as engine:
                await engine.send("run", Note("wake"), key=str(life))
                if life == 3:
                    assert await engine.result("run", timeout=10) == "shipped"
                    break

                async def further(engine: Engine = engine, life: int = life) -> bool:
                    return (await engine.status("run")).records >= 2 * life + 4 and await is_idle(engine, "run")

                await until(further)
        assert effects.counts() == {"charge": 4, "ship": 1}

    run_async(main())


def test_what_the_new_code_raised_is_the_cause_of_the_divergence() -> None:
    """For those who see the exception itself, as in a test of a saved history."""
    raised = ValueError("boom")
    error = ended_early("run", [Record(2, 1, "sleep", TimerFired())], raised)
    assert isinstance(error, Diverged)
    assert error.__cause__ is raised
