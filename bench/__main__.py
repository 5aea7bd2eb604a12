"""`python -m bench`: see `--help`, and the package's docstring for the files."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench.driver import Driver, Size
from bench.figures import Figures, Outcome, Sample
from bench.interpreter import go_on_with_the_quickest
from bench.page import page
from bench.plot import plot
from bench.systems import OWN, PERDURE, SYSTEMS, System
from bench.table import show
from bench.workloads import ALL, Workload

HERE = Path(__file__).parent
#: The raw samples of the last `make bench`, so that the page can be written again without measuring.
RAW = HERE / ".last.json"
RESULTS = HERE / "RESULTS.md"
PLOT = HERE / "RESULTS.svg"


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    # Ends like Ctrl-C does, with servers and adapters stopped.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    console = Console(width=None if Console().is_terminal else 200)
    if not (chosen.this_python or chosen.tiny or chosen.again):
        go_on_with_the_quickest(sys.argv[1:] if arguments is None else arguments, console.print)
    systems = _named(chosen.systems, SYSTEMS) if chosen.systems else OWN if chosen.quick else SYSTEMS
    if chosen.again:
        outcome = load(RAW.read_text())
    else:
        size: Size = "tiny" if chosen.tiny else "quick" if chosen.quick else "full"
        workloads = [ALL[name] for name in chosen.workloads] if chosen.workloads else _default_workloads(size)
        rounds = chosen.rounds or (3 if size == "full" else 1)
        outcome = _measure(size, systems, workloads, rounds, console, _keep if chosen.save else lambda _outcome: None)
    figures = Figures(outcome)
    show(figures, systems, console)
    if chosen.save or chosen.again:
        RESULTS.write_text(page(figures, systems, PLOT.name))
        peers = [system for system in systems if system.adapter != PERDURE.adapter]
        PLOT.write_text(plot(figures, peers))
        console.print(f"written: {RESULTS.name}, {PLOT.name}")


def _measure(
    size: Size,
    systems: Sequence[System],
    workloads: Sequence[Workload],
    rounds: int,
    console: Console,
    keep: Callable[[Outcome], None],
) -> Outcome:
    directory = Path(tempfile.mkdtemp(prefix="perdure-bench-"))
    try:
        driver = Driver(directory, size, lambda line: console.print(line, highlight=False, markup=False), keep)
        return driver.run(systems, workloads, rounds)
    finally:
        # PostgreSQL as root runs as another user and may still be letting go of its files.
        shutil.rmtree(directory, ignore_errors=True)


#: Filling a store with many runs, and whatever waits, is no part of a quick look.
_SLOW = frozenset({"crowd", "due", "growth", "plans", "snapshot", "fleet", "push"})


def _default_workloads(size: Size) -> list[Workload]:
    return [workload for workload in ALL.values() if size != "quick" or workload.name not in _SLOW]


def _keep(outcome: Outcome) -> None:
    """After each round: whatever goes wrong later does not lose half an hour of work."""
    RAW.write_text(dump(outcome))


def dump(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome))


def load(text: str) -> Outcome:
    fields = json.loads(text)
    return Outcome(**(fields | {"samples": [Sample(**sample) for sample in fields["samples"]]}))


def _named(names: Sequence[str], systems: Sequence[System]) -> list[System]:
    return [system for system in systems if system.name in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure perdure, its limits and its peers.")
    parser.add_argument("--quick", action="store_true", help="perdure and the limits only, in under a minute")
    parser.add_argument("--tiny", action="store_true", help="counts of about ten: shows that everything works")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (default 3; 1 when quick)")
    names = [system.name for system in SYSTEMS]
    parser.add_argument("--systems", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--workloads", nargs="+", choices=list(ALL), metavar="NAME", help=f"of {', '.join(ALL)}")
    parser.add_argument("--this-python", action="store_true", help="not the quickest Python of the machine, but this")
    parser.add_argument("--save", action="store_true", help="write bench/RESULTS.md and its plot")
    parser.add_argument("--again", action="store_true", help="write them again from the last saved samples")
    return parser


if __name__ == "__main__":
    main()
