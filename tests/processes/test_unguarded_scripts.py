"""Scripts that do their work at the top level: the processes that run them once more say so, and start no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
import sys
import perdure
from perdure import step, workflow
from perdure.testing import crash_everywhere

with open(sys.argv[1] if __name__ == "__main__" else {marker!r}, "a") as file:
    print(__name__, file=file)

@step
async def here() -> int:
    return 1

@step(isolation="process", initial_delay=0.001)
def elsewhere() -> int:
    return 1

@workflow
async def script(isolated: bool) -> int:
    return await (elsewhere() if isolated else here())
"""

ISOLATED = "print(perdure.run(script(True)))\n"
IN_ASYNC = """
import asyncio
async def main():
    async with perdure.Engine(":memory:") as engine:
        print(await (await engine.start(script(True))).result())
asyncio.run(main())
"""
EXITS = "if __name__ == '__main__': print(perdure.run(script(True)))\nsys.exit(0)\n"
CRASHES = "print(crash_everywhere(script(False)).result)\n"
GUARDED = "if __name__ == '__main__': print(perdure.run(script(True)), crash_everywhere(script(False)).result)\n"


def run(tmp_path: Path, tail: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What the script said, and under which names it ran."""
    script, marker = tmp_path / "script.py", tmp_path / "marker"
    script.write_text(HEAD.format(marker=str(marker)) + tail)
    done = subprocess.run(
        [sys.executable, str(script), str(marker)], capture_output=True, text=True, timeout=60, check=False
    )
    return done, marker.read_text().split()


@pytest.mark.parametrize(
    ("tail", "does"),
    [(ISOLATED, "opens an engine"), (IN_ASYNC, "opens an engine"), (EXITS, "ends by SystemExit")],
    ids=["run", "engine", "exit"],
)
def test_isolated_step_of_an_unguarded_script_fails_at_once_and_says_what_to_write(
    tmp_path: Path, tail: str, does: str
) -> None:
    """The script runs once more, no further, and the step is not tried again."""
    done, names = run(tmp_path, tail)
    assert done.returncode == 1
    assert f"runs once more in a process that perdure started for step 'elsewhere', and there {does}" in done.stderr
    assert 'under `if __name__ == "__main__":`' in done.stderr
    assert names == ["__main__", "__perdure_isolated__"]


def test_crash_everywhere_in_an_unguarded_script_says_what_to_write(tmp_path: Path) -> None:
    """One process for each hash seed, and no process of theirs."""
    done, names = run(tmp_path, CRASHES)
    assert done.returncode == 1
    assert "runs once more in a process that perdure started to replay journals" in done.stderr
    assert 'under `if __name__ == "__main__":`' in done.stderr
    assert names == ["__main__", "__perdure_other_process__", "__perdure_other_process__"]


def test_guarded_script_works(tmp_path: Path) -> None:
    """What the messages ask for."""
    done, names = run(tmp_path, GUARDED)
    assert done.stdout == "1 1\n", done.stderr
    assert sorted(names) == [
        "__main__",
        "__perdure_isolated__",
        "__perdure_other_process__",
        "__perdure_other_process__",
    ]
