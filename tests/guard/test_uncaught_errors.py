"""The guard is for workflow code alone: what the interpreter itself opens is none of its business."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """\
import asyncio
from perdure import Engine

async def main():
    async with Engine(":memory:"):
        pass
    raise ValueError("after the engine")  # the line to be shown

asyncio.run(main())
"""


def test_an_uncaught_error_is_shown_with_its_source_after_an_engine_was_open(tmp_path: Path) -> None:
    """The interpreter reads the file when no Python frame is left, and asks the audit hook first."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60).stderr
    assert 'raise ValueError("after the engine")  # the line to be shown' in shown
    assert shown.splitlines()[-1] == "ValueError: after the engine"
