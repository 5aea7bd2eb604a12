"""A short run of the fuzzer of programs; `python -m fuzz programs COUNT SEED` makes long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import programs
from perdure.kernel.journal import Completed, from_row


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_random_programs_do_what_python_does_live_replayed_and_elsewhere() -> None:
    """CONFORMANCE P3, R7, FAULTS D7, D11: also where hosts cancel everything, loops end and garbage is collected."""
    assert programs.main(50, 1) == 0


def test_the_fuzzer_sees_a_journal_that_replays_to_something_else(tmp_path: Path) -> None:
    """What it compares is there: a changed outcome, another order, a program that returns what Python does not."""
    node = ["wait", [["act", "a", False], ["act", "b", False]], "ALL_COMPLETED"]
    with programs._performing():
        lives = programs.Lives("memory", tmp_path)
        history = programs._live(lives, {"program": node}, programs.random.Random(0))["program"]
        programs.check(history, node)
        with pytest.raises(programs.Wrong, match="on an ordinary loop"):
            programs.check(history, ["act", "c", False])
        last = history.journals[-1].records[-1]
        body = from_row(programs.row_of_record(last)).body
        assert isinstance(body, Completed)
        for before, after, match in ((b"a!", b"x!", "replays to"), (b"+wait", b"+late", "another order")):
            changed = bytes(body.value).replace(before, after)
            assert changed != bytes(body.value)
            assert match in programs._difference(bytes(body.value), changed)
