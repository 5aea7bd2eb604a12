"""Runs tests on every Python of this machine that perdure supports: `make test-pythons`.

Each gets an environment of its own in `.venvs`, made once and installed again when pyproject.toml
changes. Which Pythons there are is found on PATH (`python3.12`, ...) and among pyenv's;
`PERDURE_PYTHONS="python3.12 python3.13"` says it instead.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venvs"
OLDEST = (3, 11)
#: No released Python has a higher number for now; one more look on PATH costs nothing.
NEWEST_TRIED = 30
#: Tests of what depends on the Python: its asyncio, its compiler, its tracebacks.
GROUPS = ("auto", "authoring", "kernel", "plain_python", "replay")


def _named() -> Iterator[str]:
    """What may be a Python, best first: what was asked for, else the one of this environment, PATH, pyenv."""
    asked = os.environ.get("PERDURE_PYTHONS", "").split()
    if asked:
        yield from asked
        return
    yield sys.executable
    for minor in range(OLDEST[1], NEWEST_TRIED):
        yield f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python"), reverse=True))


def _version(python: str) -> tuple[int, int] | None:
    """None if it cannot be run: pyenv puts commands on PATH that only say that they are not there."""
    found = shutil.which(python)
    if found is None:
        return None
    asked = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30)
    numbers = re.match(r"Python (\d+)\.(\d+)\.\d+$", asked.stdout.strip())  # no alphas and betas
    return (int(numbers[1]), int(numbers[2])) if asked.returncode == 0 and numbers else None


def pythons(named: Iterable[str] | None = None) -> dict[tuple[int, int], str]:
    """Version -> the first interpreter found of it, oldest first."""
    found: dict[tuple[int, int], str] = {}
    for python in _named() if named is None else named:
        version = _version(python)
        if version is not None and version >= OLDEST:
            found.setdefault(version, python)
    return dict(sorted(found.items()))


def _environment(version: tuple[int, int], python: str) -> Path:
    """The interpreter of an environment with everything installed. Raises `CalledProcessError` if that fails."""
    if version == sys.version_info[:2] and sys.prefix != sys.base_prefix:
        return Path(sys.executable)
    folder = ENVIRONMENTS / f"{version[0]}.{version[1]}"
    inside, stamp = folder / "bin" / "python", folder / ".installed"
    needs = (ROOT / "pyproject.toml").read_text()
    if not stamp.exists() or stamp.read_text() != needs:
        subprocess.run([shutil.which(python) or python, "-m", "venv", "--clear", str(folder)], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", ".[dev]"]
        subprocess.run([str(inside), *install], check=True, cwd=ROOT)
        stamp.write_text(needs)
    return inside


def main(groups: list[str]) -> int:
    folders = [f"tests/{group}" for group in groups or GROUPS]
    results: dict[str, str] = {}
    for version, python in pythons().items():
        name = f"{version[0]}.{version[1]}"
        print(f"--- Python {name}: {python}", flush=True)
        try:
            inside = _environment(version, python)
        except subprocess.CalledProcessError as error:
            results[name] = f"could not be installed: {error}"
            continue
        # Each Python caches its own bytecode; pytest's cache would be shared.
        tests = ["-m", "pytest", "-n", "2", "-q", "-m", "not long", "-p", "no:cacheprovider", *folders]
        done = subprocess.run([str(inside), *tests], cwd=ROOT)
        results[name] = "passed" if done.returncode == 0 else f"failed ({done.returncode})"
    for name, result in results.items():
        print(f"Python {name}: {result}")
    return 0 if results and all(result == "passed" for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
