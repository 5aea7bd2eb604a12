"""What workflow code should not do is stopped where it does it, and told what to write instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from guard import forbidden
from guard.forbidden import FORBIDDEN, OF_THE_LINT, Case
from lint.forbidden import FORBIDDEN as LINTED
from perdure.errors import Forbidden, Nondeterministic, RunParked
from perdure.testing import VirtualEngine

SOURCE = Path(forbidden.__file__).read_text().splitlines()


def _stopped(flow: Any, *, strict: bool) -> str:
    engine = VirtualEngine(strict=strict)
    try:
        with pytest.raises((Forbidden, RunParked)) as caught:
            engine.run(flow(), id="run")
        return f"{type(caught.value).__name__}: {caught.value}"
    finally:
        engine.shut()


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_it_is_stopped_at_the_call_and_told_what_to_write(name: str) -> None:
    """FAULTS D5, D6, D9, D10, D15: by the layer that should, with the line and the replacement."""
    case: Case = FORBIDDEN[name]
    said = _stopped(case.flow, strict=case.layer == "strict")
    assert (Nondeterministic.__name__ in said) == (case.layer == "strict"), said
    assert f"workflow code called {case.call}" in said or case.call in said.partition(" at ")[0], said
    assert case.instead in said, said
    if "loop." not in case.call and name != "sleeps_by_itself":
        place = re.search(r"at .*?forbidden\.py:(\d+)", said)
        assert place is not None, said
        assert SOURCE[int(place[1]) - 1].startswith("    "), "a line of code in a function"


@pytest.mark.parametrize("name", sorted(OF_THE_LINT))
def test_what_the_lint_finds_is_also_stopped_when_it_runs(name: str) -> None:
    """FAULTS D5, D6, D10: warned of before, refused in the end."""
    flow, _, instead = LINTED[name]
    said = _stopped(flow, strict=OF_THE_LINT[name] == "strict")
    assert (Nondeterministic.__name__ in said) == (OF_THE_LINT[name] == "strict"), said
    assert "step" in said or instead in said, said


def test_the_table_is_long() -> None:
    assert len(FORBIDDEN) >= 40
