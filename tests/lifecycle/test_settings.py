"""Settings: argument, then `PERDURE_*`, then `pyproject.toml`, then the default; nonsense is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, limits
from perdure.engine.settings import load_settings
from perdure.errors import BadArgument
from perdure.store.model import LeaseTerms


def pyproject(directory: Path, text: str) -> Path:
    (directory / "pyproject.toml").write_text(text)
    return directory


def test_argument_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    """Each setting by itself: one may come from an argument, another from the file."""
    directory = pyproject(tmp_path, "[tool.perdure]\nsteps_max = 7\nresidents_max = 8\nrecoveries_max = 9\n")
    environment = {"PERDURE_STEPS_MAX": "17", "PERDURE_RESIDENTS_MAX": "18", "PERDURE_CANCEL_GRACE": "1.5"}
    settings = load_settings({"steps_max": 27}, environment, directory)
    assert settings.steps_max == 27
    assert settings.residents_max == 18
    assert settings.recoveries_max == 9
    assert settings.cancel_grace == 1.5
    assert settings.step_threads == limits.STEP_THREADS_DEFAULT


def test_engine_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine without arguments has the settings of `PERDURE_*`."""
    monkeypatch.setenv("PERDURE_STEPS_MAX", "3")
    monkeypatch.setenv("PERDURE_ARGUMENTS_CHECK", "park")
    engine = Engine(":memory:")
    assert engine.settings.steps_max == 3
    assert engine.settings.arguments_check == "park"
    assert Engine(":memory:", steps_max=4).settings.steps_max == 4


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps_max": 0},
        {"steps_max": -1},
        {"steps_max": 1.5},
        {"steps_max": "many"},
        {"residents_max": 0},
        {"step_processes": 0},
        {"recoveries_max": 0},
        {"cancel_grace": -1},
        {"cancel_grace": math.nan},
        {"shutdown_grace": math.inf},
        {"sweep_interval": -0.1},
        {"lease": 0},
        {"lease": 0.5},
        {"lease": 3601},
        {"lease": math.nan},
        {"lease": 10, "heartbeat": 3.4},
        {"heartbeat": 0},
        {"heartbeat": -1},
        {"heartbeat": math.nan},
        {"arguments_check": "maybe"},
        {"no_such_setting": 1},
    ],
    ids=str,
)
def test_impossible_settings_are_refused_with_their_name(arguments: dict[str, Any]) -> None:
    """Before anything is opened."""
    with pytest.raises(BadArgument) as caught:
        Engine(":memory:", **arguments)
    assert next(iter(arguments)) in str(caught.value)
    assert str(caught.value).count("P-230") == 1, "the code stands once, at the end"


def test_impossible_setting_in_the_environment_is_refused() -> None:
    """With the name of the setting."""
    with pytest.raises(BadArgument, match="steps_max"):
        load_settings({}, {"PERDURE_STEPS_MAX": "lots"})


def test_unknown_setting_in_pyproject_is_refused(tmp_path: Path) -> None:
    """A typing mistake in the file is not silently ignored."""
    with pytest.raises(BadArgument, match="step_max"):
        load_settings({}, {}, pyproject(tmp_path, "[tool.perdure]\nstep_max = 7\n"))


def test_a_heartbeat_is_three_tenths_of_the_lease_unless_it_is_set() -> None:
    """Three of them fit into a lease, also if only the lease is set."""
    assert load_settings({"lease": 60}).terms == LeaseTerms(seconds=60, heartbeat=18)
    assert load_settings({}).terms == LeaseTerms(seconds=10, heartbeat=3)
    assert load_settings({"lease": 6, "heartbeat": 2}).terms == LeaseTerms(seconds=6, heartbeat=2)


def test_a_lease_that_one_lost_packet_would_end_is_refused_with_the_reason() -> None:
    with pytest.raises(BadArgument, match=r"lease of 5 s is less than three heartbeats of 2 s.*at most a third of it"):
        load_settings({"lease": 5, "heartbeat": 2})
    with pytest.raises(BadArgument, match=r"lease is 1 to 3600 seconds, not 0\.5"):
        load_settings({"lease": 0.5})
