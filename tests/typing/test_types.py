"""The decorators keep types whole: checked by mypy (strict) and basedpyright, as users' own code is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*.py"))
ROOT = Path(__file__).parents[2]


def _expected(path: Path) -> set[int]:
    """Lines marked `# E`. A decorator's error may be reported on the decorator or on the function below it."""
    return {n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# E")}


def _allowed(path: Path) -> set[int]:
    """Lines marked `# E?`, and the decorator above: an error must be on one of the two."""
    marked = [n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# E?")]
    return {line for n in marked for line in (n - 1, n)}


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


@pytest.fixture(scope="module")
def by_mypy(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, set[int]]:
    """Lines with errors, from one run over all cases."""
    # A cache of its own, kept between runs of the suite: a cold mypy reads half the standard library.
    cache = Path(os.environ.get("PERDURE_TYPING_CACHE", ROOT / ".mypy_cache" / "typing-tests"))
    command = [
        _tool("mypy"), "--strict", "--no-error-summary", "--hide-error-context", "--follow-imports=silent",
        "--no-warn-unused-ignores", "--config-file=", f"--cache-dir={cache}", *map(str, FILES),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=CASES, env={**os.environ, "MYPYPATH": ""})
    return dict(_mypy_lines(done.stdout + done.stderr))


def _mypy_lines(output: str) -> Iterator[tuple[Path, set[int]]]:
    found: dict[Path, set[int]] = {path: set() for path in FILES}
    for line in output.splitlines():
        if ": error:" in line:
            name, number, _ = line.split(":", 2)
            found[CASES / Path(name).name].add(int(number))
    yield from found.items()


@pytest.fixture(scope="module")
def by_pyright(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, set[int]]:
    """Lines with errors, from one run over all cases."""
    project = tmp_path_factory.mktemp("pyright") / "pyrightconfig.json"
    project.write_text(
        json.dumps(
            {
                "include": [str(path) for path in FILES],
                "typeCheckingMode": "strict",
                "pythonVersion": "3.11",
                "venvPath": str(Path(sys.prefix).parent),
                "venv": Path(sys.prefix).name,
            }
        )
    )
    command = [_tool("basedpyright"), "--outputjson", "--project", str(project)]
    done = subprocess.run(command, capture_output=True, text=True)
    found: dict[Path, set[int]] = {path: set() for path in FILES}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            found[Path(one["file"])].add(one["range"]["start"]["line"] + 1)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_checker_accepts_what_is_right_and_refuses_what_is_wrong(
    path: Path, checker: str, request: pytest.FixtureRequest
) -> None:
    """Arguments of workflows and steps are checked, results keep their types."""
    found = request.getfixturevalue(f"by_{checker}")[path]
    allowed = _allowed(path)
    assert found - allowed == _expected(path)
    assert not allowed or found & allowed, "nobody refused what is marked `# E?`"
