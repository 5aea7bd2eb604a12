"""New code that raises before it comes to what was recorded: the report shows the exception, not only that it ended."""

from __future__ import annotations

import pytest

from change.lives_of_a_file import live_first, parks, workflow_name
from change.versions_of_a_file import SourceFile
from perdure.errors import Diverged
from perdure.kernel.divergence import ended_early
from perdure.kernel.journal import Record, TimerFired
from support.effects import Effects
from support.lives import Lives, run_async

OLD = """
    @workflow
    async def NAME() -> str:
        await charge()
        await receive(Note)
        return await ship()
    """


@pytest.mark.parametrize("instead_of", ["await charge()", "await receive(Note)"])
def test_the_report_shows_what_the_new_code_raised_and_where(lives: Lives, effects: Effects, instead_of: str) -> None:
    """Before a record, and before the wait that the run stopped at."""
    source = SourceFile(effects.path.parent / "orders.py", effects)
    name = workflow_name()
    old = OLD.replace("NAME", name)

    async def main() -> None:
        await live_first(lives, source, old, name)
        report = await parks(lives, source, old.replace(instead_of, "raise KeyError('no such customer')"), effects)
        assert "the workflow function raised KeyError: 'no such customer'" in report
        assert f"(orders.py:{source.line_of('raise KeyError')})" in report

    run_async(main())


def test_the_exception_is_the_cause() -> None:
    """For those who see the exception itself, as in a test of a saved history."""
    raised = ValueError("boom")
    error = ended_early("run", [Record(2, 1, "sleep", TimerFired())], raised)
    assert isinstance(error, Diverged)
    assert error.__cause__ is raised
