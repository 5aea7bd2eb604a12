"""Every example runs as it is written."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

#: What each prints, in this order.
PRINTS = {
    "hello.py": ["Hello, world!"],
    "approval.py": ["to boss: please decide about expense-1", "paid 42.00 for expense-1", "still waiting", "expired"],
    "batch.py": ["sum of squares: 281295", "95 items in 10 generations"],
    "subscription.py": ["billing ann for month 1", "closing the account of ann", "was cancelled: moved abroad"],
    "log_store.py": ["stamping page 1", "stamping page 2", "['page 1 stamped', 'page 2 stamped']", "the log has"],
    "mending.py": [
        "charging order-1",
        "failed at ",
        "with ConnectionError: the carrier does not answer",
        "order-1 is on its way (receipt for order-1)",
        "told: spring sale",
    ],
    "deploying.py": [
        "a fax about o-1",
        "careless: ['o-1 diverged']",
        "careful: ['o-1 fine']",
        "o-1 shipped",
        "o-2 shipped",
    ],
    "copying.py": [
        "asking for the price of lamp",
        "charged 19.99",
        "order-7: 4 records here, too",
        "free: charged 0.00",
        "three: charged 59.97",
        "pruned: 1",
    ],
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


def test_what_was_done_before_the_failure_is_not_done_again(tmp_path: Path) -> None:
    """L4: the mended order is charged once; the old run is not reserved, the new one is."""
    assert run("mending.py", tmp_path).count("charging") == 1
    assert run("deploying.py", tmp_path).count("reserving o-2") == 1
    assert "reserving o-1" not in run("deploying.py", tmp_path)


def test_every_example_is_tested_and_explains_itself() -> None:
    files = {path.name: path for path in EXAMPLES.glob("*.py")}
    assert set(files) == set(PRINTS)
    for path in files.values():
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_first_example_stays_small() -> None:
    lines = [line for line in (EXAMPLES / "hello.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 15
