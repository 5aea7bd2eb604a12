"""An `--app` that cannot be imported: the user's file and line and the error, and nothing of perdure's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.cli_kit import invoke
from perdure.cli.exits import ExitCode

#: name -> (text of the module, what must be shown)
BROKEN = {
    "raises": (
        "def price():\n    return 1 // 0\n\nCENTS = price()\n",
        ["line 4", "line 2, in price", "ZeroDivisionError"],
    ),
    "syntax": ("x = 1\ndef f(:\n    pass\n", ["line 2", "def f(:", "SyntaxError: "]),
    "missing": ("import os\nimport no_such_library\n", ["line 2", "import no_such_library", "ModuleNotFoundError"]),
    "leaves": ("import sys\nsys.exit(3)\n", ["line 2", "SystemExit: 3"]),
}


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_the_users_line_and_error_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, by_name: bool
) -> None:
    text, shown = BROKEN[name]
    module = f"broken_{name}_{by_name}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = invoke("worker", "--app", module if by_name else f"{module}.py", store=tmp_path / "x.db")
    assert result.exit_code == ExitCode.ERROR
    for part in (f"{module}.py", *shown):
        assert part in result.stderr
    assert "importlib" not in result.stderr
    assert "perdure/cli" not in result.stderr
    assert not (tmp_path / "x.db").exists()
