"""Whether a child of a supervisor is started again, and when."""

from __future__ import annotations

import random

import pytest

from perdure.cli.restarts import Backoff, exit_code_of, is_incurable, manner


def test_pauses_double_up_to_a_limit_and_are_drawn_anew() -> None:
    backoff = Backoff(random.Random(1))
    pauses = [backoff.died(1.0) for _ in range(12)]
    for number, pause in enumerate(pauses):
        usual = min(0.5 * 2**number, 30.0)
        assert 0.75 * usual <= pause <= 1.25 * usual
    assert len(set(pauses)) == 12, "children that died together must not come back together"


def test_a_child_that_lived_for_a_while_begins_anew() -> None:
    backoff = Backoff(random.Random(1))
    for _ in range(8):
        backoff.died(1.0)
    assert backoff.died(59.0) > 20
    assert backoff.died(60.0) < 1


@pytest.mark.parametrize(
    ("code", "was_ready", "refused", "expected"),
    [
        (2, False, False, True),  # the command line
        (8, False, False, True),  # a store that has to be migrated
        (7, False, False, True),
        (1, False, True, True),  # it said that its app or its store is not usable
        (1, False, False, False),  # a store that does not answer, a traceback
        (-9, False, False, False),
        (7, True, False, True),  # the files of the store are gone
        (0, True, False, False),  # somebody told the child to leave
        (1, True, False, False),
        (2, True, False, False),  # code of a step ended the process
        (-11, True, False, False),
    ],
)
def test_what_a_restart_does_not_help(code: int, was_ready: bool, refused: bool, expected: bool) -> None:
    assert is_incurable(code, was_ready=was_ready, refused=refused) is expected


def test_ends_are_named() -> None:
    assert [manner(code) for code in (0, 3, -9, -250)] == ["exit code 0", "exit code 3", "SIGKILL", "signal 250"]
    assert [exit_code_of(code) for code in (0, 7, -9)] == [0, 7, 137]
