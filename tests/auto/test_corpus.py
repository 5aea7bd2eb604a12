"""A function does the same in auto mode as in plain Python: live, after a crash at every record, on every replay."""

from __future__ import annotations

from typing import Any

import pytest

from auto import corpus, corpus_corners
from auto.comparing import compare, plainly
from auto.corpus import PLAIN, WORKFLOWS, done
from perdure.testing import crash_everywhere
from support.lives import Lives, run_async

assert corpus_corners  # its functions are part of the corpus


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_auto_mode_is_plain_python_and_survives_every_crash(name: str) -> None:
    """CONFORMANCE A1, A2, A3: the same value or exception and the same effects in the same order; and with a crash at
    each commit every recorded call is made once."""
    function, args = PLAIN[name]
    compare(function, WORKFLOWS[name], args, done)


def test_the_corpus_is_large() -> None:
    assert len(PLAIN) >= 100


@pytest.mark.parametrize(
    "name", ["over_a_set", "comprehensions", "caught", "match_statement", "gathered", "with_steps"]
)
def test_on_every_store(name: str, lives: Lives) -> None:
    """CONFORMANCE A1: killed at every record, on memory and SQLite."""
    args = PLAIN[name][1] if name in PLAIN else ()
    flow = WORKFLOWS[name] if name in PLAIN else corpus.with_steps
    result = run_async(lives.crash_at_every_record(lambda: flow(*args)))
    if name in PLAIN:
        assert result == plainly(PLAIN[name][0], args, done).value


@pytest.mark.parametrize("flow", [corpus.with_steps, corpus.plain_with_steps], ids=["async", "plain"])
def test_durable_operations_pass_through(flow: Any) -> None:
    """Steps, verbs and asyncio are what they are without auto mode."""
    done.clear()
    result = crash_everywhere(flow(), effects=done, hash_seeds=()).result
    assert result[0] == 10
    assert result[2] == [8, 10]
    assert result[3] == [60]
