"""What does no harm is never reported, by no layer: a guard that cries wolf is switched off."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from guard.allowed import ALLOWED
from lint.allowed import ALLOWED as LINTED
from lint.allowed import reads_a_file
from perdure import RunFailed
from perdure.authoring.lint import lint
from perdure.errors import DeterminismWarning
from perdure.testing import VirtualEngine
from support.lives import Lives, run_async

EVERY: dict[str, Any] = {**{f"lint_{name}": flow for name, flow in LINTED.items()}, **ALLOWED}


def test_the_table_is_long() -> None:
    assert len(ALLOWED) >= 40


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_the_lint_finds_nothing(name: str) -> None:
    assert [str(one) for one in lint(ALLOWED[name])] == []


@pytest.mark.parametrize("name", sorted(EVERY))
def test_it_runs_undisturbed_under_the_strict_guard(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Twice from its journal: a replay is guarded as well."""
    engine = VirtualEngine(always_replay=True, arguments_check="off")
    engine.mock(reads_a_file, "text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeterminismWarning)
            engine.run(EVERY[name](*([1] if name == "lint_auto" else [])), id="run")
    except RunFailed:
        if not name.startswith("lint_"):  # some of those, made to be read only, return what cannot be stored
            raise
    finally:
        engine.shut()
    assert "workflow code called" not in caplog.text


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_it_runs_undisturbed_in_an_ordinary_engine(name: str, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Lives("sqlite", tmp_path).engine() as engine:
            await (await engine.start(ALLOWED[name](), id="run")).result(timeout=30)

    run_async(main())
    assert "workflow code called" not in caplog.text
