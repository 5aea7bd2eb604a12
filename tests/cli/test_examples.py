"""Every example runs as it is written."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import Engine
from support.lives import run_async, until
from support.processes import Process

EXAMPLES = Path(__file__).parents[2] / "examples"

#: What each prints, in this order.
PRINTS = {
    "hello.py": ["Hello, world!"],
    "approval.py": ["to boss: please decide about expense-1", "paid 42.00 for expense-1", "still waiting", "expired"],
    "batch.py": ["sum of squares: 281295", "95 items in 10 generations"],
    "subscription.py": ["billing ann for month 1", "closing the account of ann", "was cancelled: moved abroad"],
    "human_in_the_loop.py": ["may I look up a train ticket?", "doing: look up a train ticket", "left out pay for"],
    "orders.py": ["charging 19.99 for o-1", "shipping o-1", "order-1 is waiting at orders.py:"],
}


def run(name: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)], capture_output=True, text=True, timeout=60, cwd=directory
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_an_example_runs_and_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    """Issue 2, bar 2 for orders.py."""
    printed = run(name, tmp_path)
    position = 0
    for part in PRINTS[name]:
        found = printed.find(part, position)
        assert found >= 0, f"{part!r} is missing in {printed!r}"
        position = found


def test_the_order_goes_on_where_it_was_when_run_again(tmp_path: Path) -> None:
    """R1: recorded steps do not run again in the next process."""
    assert "charging" in run("orders.py", tmp_path)
    again = run("orders.py", tmp_path)
    assert "charging" not in again
    assert "shipping" not in again
    assert "order-1 is waiting" in again


#: For each example: the line at which its first process is killed, and what the next one prints.
KILLED = {
    "approval": ("to boss: please decide about expense-1", ["paid 42.00 for expense-1"]),
    "subscription": (
        "billing ann for month 2",
        ["billing ann for month 3", "billing ann for month 4", "4"],
    ),
    "human_in_the_loop": (
        "doing: look up a ticket",
        ["may I pay for a ticket?", "['did look up a ticket', 'left out pay for a ticket']"],
    ),
}


@pytest.mark.parametrize("name", sorted(KILLED))
def test_an_example_goes_on_after_a_kill_in_the_middle(name: str, tmp_path: Path) -> None:
    """R1 with SIGKILL: recorded steps do not run again, what was waited for still is."""
    last, expected = KILLED[name]
    database = tmp_path / "example.db"
    with Process("cli.example_lives:begin", name, str(database)) as first:
        while (line := first.line()) != last:
            assert line, "the example ended before it was killed"
        _wait_until_recorded(database, name)
        first.kill()
    with Process("cli.example_lives:finish", name, str(database)) as second:
        printed: list[str] = []
        while line := second.line():
            printed.append(line)
        assert second.wait() == 0
    assert printed == expected


def _wait_until_recorded(database: Path, name: str) -> None:
    """Until the step that printed the last line is durable: from then on it must not run again."""
    records = {"approval": 2, "subscription": 4, "human_in_the_loop": 4}[name]

    async def main() -> None:
        async with Engine(database, worker=False) as engine:

            async def recorded() -> bool:
                return (await engine.status("run")).records >= records

            await until(recorded)

    run_async(main())


def test_every_example_is_tested_and_explains_itself() -> None:
    files = {path.name: path for path in EXAMPLES.glob("*.py")}
    assert set(files) == set(PRINTS)
    for path in files.values():
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_first_example_stays_small() -> None:
    lines = [line for line in (EXAMPLES / "hello.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 15
