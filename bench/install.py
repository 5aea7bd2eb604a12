"""A virtual environment for each system under bench/.venvs, made when it is missing. `python -m bench.install` for all.

One that cannot be made is no reason to stop: the results then say why it is missing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.systems import PEERS, POSTGRESQL, VENVS, System

SECONDS_MAX = 300
#: The npm package with the server, under bench/.venvs/restate-server.
RESTATE_PACKAGE = "@restatedev/restate-server"


class NotInstalled(Exception):
    """Why, in a line."""


def installed(system: System) -> str:
    """Install what is missing and return the version. Raises `NotInstalled`."""
    if not system.requirements:
        if system.server == "postgresql":
            _version(system.python, "psycopg")
        return _version(system.python, "perdure")
    if system.environment:
        environment(system.environment, system.requirements, Path(sys.executable))
    version = _version(system.python, system.requirements[0].partition("[")[0])
    if system.server == "restate":
        version += f", server {_restate_version()}"
    return version


def environment(name: str, requirements: Sequence[str], base: Path) -> Path:
    """The interpreter of a virtual environment for these requirements, made with `base` if it is not there yet."""
    directory = VENVS / name
    python = directory / "bin" / "python"
    stamp = directory / ".installed"
    wanted = json.dumps([_run([str(base), "-c", "import sys; print(sys.base_prefix, sys.version)"]), *requirements])
    if not stamp.exists() or stamp.read_text() != wanted:
        _run([str(base), "-m", "venv", "--clear", str(directory)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
        stamp.write_text(wanted)
    return python


def restate_server() -> Path:
    """The server's binary: the npm package for this platform holds one."""
    found = sorted((VENVS / "restate-server").glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not found:
        raise NotInstalled("the npm package of the Restate server has no binary for this platform")
    return found[0]


def _restate_version() -> str:
    directory = VENVS / "restate-server"
    if not (directory / "node_modules").exists():
        if shutil.which("npm") is None:
            raise NotInstalled("npm, which brings the Restate server, is not there")
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "package.json").write_text('{"private": true}\n')
        # No scripts: they only report the installation to the maker of the package.
        _run(["npm", "install", "--ignore-scripts", "--no-fund", "--no-audit", RESTATE_PACKAGE], directory)
    return _run([str(restate_server()), "--version"]).split()[-1]


def _version(python: Path, package: str) -> str:
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return _run([str(python), "-c", code]).strip()


def _run(command: list[str], directory: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{command[0]}: {type(error).__name__}") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise NotInstalled(lines[-1][:200] if lines else f"{command[0]} ended with {done.returncode}")
    return done.stdout


def main() -> None:
    for system in (POSTGRESQL, *PEERS):
        try:
            print(f"{system.title}: {installed(system)}")
        except NotInstalled as reason:
            print(f"{system.title}: not installed: {reason}")


if __name__ == "__main__":
    main()
