"""The files of `deploy/` fit this release: what they call exists, and they say what their README says."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from perdure.cli.main import COMMANDS
from perdure.cli.supervised import leaving_seconds
from perdure.engine.settings import Settings
from perdure.limits import CHILD_LEAVING_SECONDS
from perdure.store.postgres.url import parse
from support import compose
from support.pages import ROOT

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "perdure-worker@.service"
#: What workers and those who start them may take to end, on top of three times the grace.
LEAVING_SECONDS = leaving_seconds(0) + CHILD_LEAVING_SECONDS


def services() -> dict[str, Any]:
    found: dict[str, Any] = compose.read((DEPLOY / "compose.yaml").read_text())
    return found


def unit() -> dict[str, list[str]]:
    """The settings of the unit, of all its sections."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^([A-Z]\w+)=(.*)$", UNIT.read_text(), re.M):
        found.setdefault(name, []).append(value)
    return found


def understood(arguments: list[str]) -> dict[str, Any]:
    """What the command line of this release makes of them. Raises `click.UsageError`."""
    module, _, attribute = COMMANDS[arguments[0]][0].partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command.make_context(arguments[0], arguments[1:]).params


def calls(text: str) -> list[list[str]]:
    """The commands of perdure in a line of shell."""
    return [shlex.split(found) for found in re.findall(r"(?<![\w/])perdure ((?:worker|ls)\b[^;|&]*)", text)]


def test_the_commands_of_compose_are_understood() -> None:
    worker = services()["services"]["worker"]
    ((run),) = calls(worker["command"][-1])
    ((check),) = calls(worker["healthcheck"]["test"][-1])
    assert understood(run) == {**understood(["worker"]), "as_json": True, "grace": 20.0}
    assert understood(check)["limit"] == 1
    assert "exec perdure" in worker["command"][-1], "so that the worker, and not the shell, gets the signal"


def test_the_command_of_the_unit_is_understood() -> None:
    (line,) = unit()["ExecStart"]
    path, *arguments = shlex.split(line)
    assert path.endswith("/bin/perdure")
    assert arguments.pop() == "$PERDURE_WORKER_OPTIONS"
    assert understood(arguments)["name"] == "%i@%H"
    (options,) = re.findall(r"^#   PERDURE_WORKER_OPTIONS=(.*)$", UNIT.read_text(), re.M)
    assert understood([*arguments, *options.split()])["processes"] == 4, "what SIGHUP restarts one by one"


def test_an_option_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        understood(["worker", "--no-such-option"])


def test_there_is_time_to_drain() -> None:
    """Longer than three times the grace and what is on top of it; a worker that ends earlier is not waited for."""
    grace = understood(calls(services()["services"]["worker"]["command"][-1])[0])["grace"]
    assert int(services()["services"]["worker"]["stop_grace_period"].removesuffix("s")) > 3 * grace + LEAVING_SECONDS
    (line,) = unit()["ExecStart"]
    grace = understood(shlex.split(line)[1:-1])["grace"]
    assert "three times the grace and 22 seconds" in UNIT.read_text()
    assert LEAVING_SECONDS == 22
    assert int(unit()["TimeoutStopSec"][0]) > 3 * grace + LEAVING_SECONDS


def test_the_unit_says_what_it_has_to() -> None:
    found = unit()
    assert (found["Type"], found["KillSignal"]) == (["exec"], ["SIGTERM"])
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert found["RestartPreventExitStatus"] == ["2 7 8"]
    assert {"NoNewPrivileges", "ProtectSystem", "DynamicUser", "SystemCallFilter", "CapabilityBoundingSet"} <= set(
        found
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """With a program that is there in the place of the worker."""
    copy = tmp_path / "perdure-worker@shop.service"
    program = str(shutil.which("true"))  # of which the path has no spaces, as that of this checkout may have
    text = UNIT.read_text().replace("/opt/perdure/bin/perdure", program).replace("/opt/perdure", str(tmp_path))
    copy.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    copy.write_text(text.replace("KillMode=mixed", "KillMode=mixedup"))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)
    assert "mixedup" in done.stderr, "it would say so"


def test_settings_and_urls_exist_and_hold_no_password() -> None:
    text = UNIT.read_text() + (DEPLOY / "compose.yaml").read_text()
    names = {"PERDURE_STORE", "PERDURE_APP", "PERDURE_WORKER_OPTIONS"}
    names |= {f"PERDURE_{name.upper()}" for name in Settings.__struct_fields__}
    assert set(re.findall(r"PERDURE_[A-Z_]+", text)) <= names
    urls = re.findall(r"postgresql://\S+", text)
    assert len(urls) == 2
    assert [parse(url).parameters.get("password") for url in urls] == [None, None]


def test_compose_waits_for_the_database_and_keeps_the_password_in_a_file() -> None:
    found = services()
    database, worker = found["services"]["database"], found["services"]["worker"]
    assert worker["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert "pg_isready" in database["healthcheck"]["test"][1]
    secret = database["environment"]["POSTGRES_PASSWORD_FILE"].removeprefix("/run/secrets/")
    assert list(found["secrets"]) == database["secrets"] == worker["secrets"] == [secret]
    assert set(found["secrets"][secret]) == {"file"}
    assert f"/run/secrets/{secret}" in worker["command"][-1]
    user, name = database["environment"]["POSTGRES_USER"], database["environment"]["POSTGRES_DB"]
    parameters = parse(worker["environment"]["PERDURE_STORE"]).parameters
    assert (parameters["user"], parameters["host"], parameters["dbname"]) == (user, "database", name)


def test_every_file_is_in_the_readme() -> None:
    text = (DEPLOY / "README.md").read_text()
    assert [
        name for name in os.listdir(DEPLOY) if name != "README.md" and not name.startswith(".") and name not in text
    ] == []


def test_yaml_that_is_not_understood_is_refused() -> None:
    """So that nothing is read as something else."""
    assert compose.read("a:\n  b: 1\n  c:\n    - x y\n    - z\nd: [\"e\"]\n") == {
        "a": {"b": "1", "c": ["x y", "z"]}, "d": ["e"],
    }  # fmt: skip
    for text in ("a: &anchor b", "a: |\n  b", "a: 'b'", "a\n", "a: 1\na: 2", "a:\n  - b: c", "a: b # c"):
        with pytest.raises(ValueError, match="not understood"):
            compose.read(text)
