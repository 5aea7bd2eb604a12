"""What is imported when: the library never loads the CLI, and help loads no command."""

from __future__ import annotations

import subprocess
import sys


def modules_after(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_perdure_loads_neither_click_nor_rich() -> None:
    """`import perdure` stays quick."""
    loaded = modules_after("import perdure")
    assert not {"click", "rich", "apsw", "perdure.cli"} & loaded


def test_help_loads_no_command() -> None:
    loaded = modules_after(
        "from perdure.cli.main import cli\ncli.main(['--help'], prog_name='perdure', standalone_mode=False)"
    )
    assert "click" in loaded
    assert not {"rich", "perdure.cli.ls", "perdure.cli.demo", "perdure.cli.worker"} & loaded
