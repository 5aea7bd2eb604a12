"""This checkout of perdure beside another one, by turns: `python -m bench.compare OTHER [WORKLOAD ...] [--rounds 5]`

On SQLite and in memory, or where `--stores` says: `--stores postgresql` starts a server, on which each gets a new
database for each round.

Two figures can be compared only if they were taken within seconds of each other, so each round does one workload on one
store with this checkout and then with the other, the next round in the opposite order. A line says how many times as
fast this one is, as the ratio of the two medians: 0.95 means that it takes a twentieth longer.

Both are driven by the adapter of this checkout and by this interpreter, which finds the `src` of the one or the other;
only what uses the inside of perdure (`Workload.inside`) is driven by the adapter that came with it. The environment is
handed on, so that a variable that switches something off does so in both.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.bars import number, shown
from bench.driver import ALONE_SECONDS_MAX, SECONDS_MAX, Place, run_job
from bench.figures import Figures, Outcome, Range, Sample
from bench.install import installed
from bench.servers import Postgresql, postgresql
from bench.systems import OWN, PERDURE, PERDURE_MEMORY, POSTGRESQL, ROOT, System
from bench.wire import Job
from bench.workloads import ALL, Counts, Workload

#: Those compared unless others are named, and the names of all.
STORES = (PERDURE, PERDURE_MEMORY)
NAMES: Mapping[str, System] = {
    "sqlite" if store is PERDURE else store.name.removeprefix("perdure-"): store for store in OWN
}

#: Those compared unless others are named: one for each way through the engine, each quick enough to be taken often.
DEFAULT = (
    *("seq", "many", "fanout", "empty", "events", "children", "replay", "recover"),
    *("payload", "io", "threads", "journal", "import"),
)

#: Five rounds of all of them take less than four minutes. Rounds are worth more than counts: they are taken by turns.
COUNTS: Mapping[str, Counts] = {
    "seq": {"steps": 500, "times": 3},
    "many": {"runs": 500, "steps": 5, "times": 3},
    "fanout": {"steps": 1_000, "times": 3},
    "replay": {"steps": 1_000},
    "recover": {"runs": 500, "steps": 4},
    "children": {"runs": 500},
    "journal": {"steps": 2_000, "times": 5},
    "import": {"times": 3},
}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two checkouts."""

    name: str
    root: Path

    def place(self, workload: Workload) -> Place:
        return Place(self.root if workload.inside else ROOT, self.root / "src")

    def sample(
        self, store: System, workload: Workload, counts: Counts, round_: int, directory: Path, url: str = ""
    ) -> Sample:
        job = Job(workload.name, str(directory), counts, variant=store.variant)
        seconds = ALONE_SECONDS_MAX if workload.alone else SECONDS_MAX["quick"]
        answer = run_job(store, job, url, workload.killed, seconds, place=self.place(workload))
        return Sample(self.called(store), workload.name, round_, counts, **answer)

    def called(self, store: System) -> str:
        """The name of its samples: those of the two sides are two systems to `Figures`."""
        return f"{self.name}: {store.name}"


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of one workload on one store, of both sides."""

    workload: str
    store: str
    unit: str
    ours: Range
    theirs: Range
    better: str

    @property
    def ratio(self) -> float:
        """How many times as fast this checkout is, whichever way the figure counts."""
        return self._times(self.ours.median, self.theirs.median)

    @property
    def rounds(self) -> Range:
        """The same round by round: a wide range says that the machine was busy, not who is faster."""
        return Range(tuple(map(self._times, self.ours.values, self.theirs.values)))

    def _times(self, our: float, their: float) -> float:
        return our / their if self.better == "higher" else their / our


def by_turns(sides: Sequence[Side], round_: int) -> Sequence[Side]:
    """A B, B A, A B: a machine that gets slower or faster must not look like a difference."""
    return sides if round_ % 2 == 0 else tuple(reversed(sides))


def stores_of(workload: Workload, stores: Sequence[System] = STORES) -> Sequence[System]:
    """All of them, except for what has to survive a kill, and for what is measured on some only."""
    if workload.alone:
        # Of those that are measured alike, the first.
        return tuple(store for store in stores if store.name in workload.systems)[:1]
    return tuple(store for store in stores if store is not PERDURE_MEMORY or not workload.killed)


def measure(
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    rounds: int,
    counts: Callable[[Workload], Counts],
    say: Callable[[Sample], None] = lambda _sample: None,
    stores: Sequence[System] = STORES,
) -> Outcome:
    samples: list[Sample] = []
    with contextlib.ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True))
        )
        server: Postgresql | None = None
        if any(store.server for store in stores):
            server = stack.enter_context(postgresql(directory))
        for round_ in range(rounds):
            for workload in workloads:
                for store in stores_of(workload, stores):
                    for side in by_turns(sides, round_):
                        url = server.database() if server is not None and store.server else ""
                        place = directory / str(len(samples))
                        samples.append(side.sample(store, workload, counts(workload), round_, place, url))
                        say(samples[-1])
    return Outcome(samples)


def lines(
    outcome: Outcome, ours: Side, theirs: Side, workloads: Sequence[Workload], stores: Sequence[System] = STORES
) -> Iterator[Line]:
    """What both sides did in the same rounds. What one of them never did has no line; `troubles` says why."""
    for workload in workloads:
        for store in stores_of(workload, stores):
            done = Figures(_rounds_of_both(outcome, workload.name, ours.called(store), theirs.called(store)))
            for figure in (workload.figure, *workload.also):
                found = [done.range(side.called(store), workload.name, figure) for side in (ours, theirs)]
                if found[0] and found[1]:
                    title = f"{workload.name} {figure}" if workload.also else workload.name
                    yield Line(title, store.title, workload.unit, found[0], found[1], workload.better)


def _rounds_of_both(outcome: Outcome, workload: str, *systems: str) -> Outcome:
    asked = [sample for sample in outcome.samples if sample.workload == workload and sample.system in systems]
    lost = {sample.round for sample in asked if sample.raw is None}
    return Outcome([sample for sample in asked if sample.round not in lost])


def troubles(outcome: Outcome) -> list[str]:
    """What did not give a figure, each once."""
    texts = (
        f"{sample.workload}, {sample.system}: {sample.refused or sample.failed}"
        for sample in outcome.samples
        if sample.raw is None
    )
    return list(dict.fromkeys(texts))


def table(found: Sequence[Line]) -> Table:
    shape = Table(title="how many times as fast this checkout is", title_justify="left")
    for index, column in enumerate(("workload", "store", "this", "other", "ratio of medians", "round by round")):
        shape.add_column(column, justify="left" if index < 2 else "right")
    for line in found:
        each = line.rounds
        shape.add_row(
            f"{line.workload} ({line.unit})",
            line.store,
            shown(line.ours),
            shown(line.theirs),
            f"{line.ratio:.2f}",
            f"{number(each.low)} to {number(each.high)}",
        )
    return shape


def describe(side: Side) -> str:
    """Which checkout it is. Exits if Python would take another perdure than the one of its `src`."""
    source = side.root / "src"
    code = "import perdure; print(perdure.__file__)"
    environment = Place(source=source).environment
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if not Path(done.stdout.strip()).is_relative_to(source.resolve()):
        sys.exit(f"{side.root} is no checkout of perdure: it has no src/perdure that Python can import")
    commit = ["git", "-C", str(side.root), "log", "-1", "--format=%h %s"]
    subject = subprocess.run(commit, capture_output=True, text=True).stdout.strip()
    # What was compiled for a package that is gone stays in the folder, and is used by nobody.
    compiled = sum((path.parent / "__init__.py").exists() for path in source.rglob("*.so"))
    return f"{side.name}: {subject or side.root} ({compiled} compiled modules)"


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    # Ends like Ctrl-C does, with adapters stopped.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    sides = ours, theirs = Side("this", ROOT), Side("other", chosen.other.resolve())
    for side in sides:
        console.print(describe(side), markup=False)
    workloads = chosen.workloads or [ALL[name] for name in DEFAULT]
    stores = [NAMES[name] for name in chosen.stores] if chosen.stores else STORES
    if POSTGRESQL.name in {store.server for store in stores}:
        installed(POSTGRESQL)

    def counts(workload: Workload) -> Counts:
        return workload.tiny if chosen.tiny else COUNTS.get(workload.name, workload.quick)

    with contextlib.nullcontext() if chosen.tiny else console.status("measuring") as status:

        def say(sample: Sample) -> None:
            if status is not None:
                status.update(f"round {sample.round + 1} of {chosen.rounds}: {sample.workload}, {sample.system}")

        outcome = measure(sides, workloads, chosen.rounds, counts, say, stores)
    console.print(table(list(lines(outcome, ours, theirs, workloads, stores))))
    for trouble in troubles(outcome):
        console.print(trouble, markup=False)


def _workload(name: str) -> Workload:
    if name not in ALL:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(ALL)}")
    return ALL[name]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="Two checkouts of perdure, by turns.")
    parser.add_argument("other", type=Path, help="the other checkout, or any folder with its src/perdure")
    parser.add_argument("workloads", nargs="*", type=_workload, metavar="WORKLOAD", help=f"of {', '.join(ALL)}")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default 5)")
    parser.add_argument("--stores", nargs="+", choices=list(NAMES), metavar="STORE", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--tiny", action="store_true", help="counts of about ten: shows that it works")
    return parser


if __name__ == "__main__":
    main()
