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
    "countdown.py": ["10 ...", "5 ...", "1 ...", "lift-off"],
    "batch_loop.py": ["importing from the beginning", "500 rows imported", "records in the journal"],
    "order_saga.py": [
        "charging 19.99",
        "refunding receipt-o-1",
        "putting back",
        "undone: no parcel service goes to the address of o-1",
    ],
    "batch.py": ["sum of squares: 281295", "95 items in 10 generations"],
    "subscription.py": ["billing ann for month 1", "closing the account of ann", "was cancelled: moved abroad"],
    "log_store.py": ["stamping page 1", "stamping page 2", "['page 1 stamped', 'page 2 stamped']", "the log has"],
    "fixing.py": [
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
    """Each runs as it stands."""
    printed = run(name, tmp_path)
    position = 0
    for part in PRINTS[name]:
        found = printed.find(part, position)
        assert found >= 0, f"{part!r} is missing in {printed!r}"
        position = found


def test_the_order_goes_on_where_it_was_when_run_again(tmp_path: Path) -> None:
    """CONFORMANCE R1: recorded steps do not run again in the next process."""
    assert "charging" in run("orders.py", tmp_path)
    again = run("orders.py", tmp_path)
    assert "charging" not in again
    assert "shipping" not in again
    assert "order-1 is waiting" in again


def test_what_was_done_before_the_failure_is_not_done_again(tmp_path: Path) -> None:
    """CONFORMANCE L4: the fixed order is charged once; the old run is not reserved, the new one is."""
    assert run("fixing.py", tmp_path).count("charging") == 1
    assert run("deploying.py", tmp_path).count("reserving o-2") == 1
    assert "reserving o-1" not in run("deploying.py", tmp_path)


def killed(name: str, directory: Path, until: str) -> list[str]:
    """Run an example and kill it when it prints a line that begins like this; what it had printed."""
    command = [sys.executable, "-u", "-W", "error", str(EXAMPLES / name)]
    printed: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=directory) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line.rstrip("\n"))
            if line.startswith(until):
                break
        process.kill()
        printed += (line.rstrip("\n") for line in process.stdout)  # it went on until it died
    assert process.returncode == -9, "it ended before it could be killed"
    return printed


@pytest.mark.parametrize("until", ["charging", "shipping"])
def test_the_order_goes_on_after_a_kill_in_the_middle(tmp_path: Path, until: str) -> None:
    """CONFORMANCE R1: at most the steps under way at the kill happen twice, what was recorded never again."""
    printed = killed("orders.py", tmp_path, until)
    again = run("orders.py", tmp_path)
    assert "order-1 is waiting" in again
    happened = "\n".join(printed) + again
    assert happened.count("charging") <= (2 if until == "charging" else 1)
    assert 1 <= happened.count("shipping") <= 2
    assert 1 <= happened.count("telling ann") <= 2
    assert "charging" not in run("orders.py", tmp_path)


def test_the_countdown_goes_on_where_it_was(tmp_path: Path) -> None:
    """CONFORMANCE C4: killed in the fifth iteration; no finished one is repeated."""
    first = killed("countdown.py", tmp_path, "6 ...")
    second = run("countdown.py", tmp_path).splitlines()
    assert first == ["10 ...", "9 ...", "8 ...", "7 ...", "6 ..."]
    # The number was said before the kill; whether that was recorded decides if it is said again.
    assert second[second[0] == "6 ..." :] == ["5 ...", "4 ...", "3 ...", "2 ...", "1 ...", "lift-off"]
    assert run("countdown.py", tmp_path) == "lift-off\n"


def test_the_import_goes_on_with_its_page_and_keeps_a_small_journal(tmp_path: Path) -> None:
    """CONFORMANCE C4: killed again and again, some way into the import each time; the sum is right in the end."""
    for _ in range(3):
        killed("batch_loop.py", tmp_path, "importing")
    printed = run("batch_loop.py", tmp_path).splitlines()
    assert printed[1] == "500 rows imported"
    records, pruned = (int(word) for word in printed[2].split() if word.isdecimal())
    assert records + pruned == 1 + 51 + 500 + 50 + 1
    assert records < 50


@pytest.mark.parametrize("until", ["charging", "refunding", "putting back"])
def test_the_order_is_undone_once_over_a_kill(tmp_path: Path, until: str) -> None:
    """CONFORMANCE C5: killed while it is charged or undone; at most the step under way happens twice."""
    printed = killed("order_saga.py", tmp_path, until)
    again = run("order_saga.py", tmp_path).splitlines()
    assert again[-1].startswith("undone: no parcel service")
    happened = [*printed, *again[:-1]]
    everything = ["reserving book", "reserving lamp", "charging 19.99", "refunding receipt-o-1"]
    everything += ["putting back lamp", "putting back book"]
    assert set(happened) == set(everything)
    assert len(happened) <= len(everything) + 1
    assert again[-2].startswith("putting back")


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
    """CONFORMANCE R1 with SIGKILL: recorded steps do not run again, what was waited for still is."""
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
