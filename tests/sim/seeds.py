"""Many seeds, on every core, and the report of one that fails."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from sim.plan import USUAL, Fault, Setting
from sim.shrink import shrink
from sim.world import Report, simulate

_CHUNK = 20


def run_seeds(seeds: Iterable[int], processes: int | None = None, setting: Setting = USUAL) -> Iterator[Report]:
    """Reports in the order of their seeds. One process: in this one."""
    live = partial(_live, setting)
    processes = processes or os.cpu_count() or 1
    if processes == 1:
        yield from map(live, seeds)
        return
    # Not forked: a child must not have half of whatever its parent was doing.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(live, seeds, chunksize=_CHUNK)


def _live(setting: Setting, seed: int) -> Report:
    return simulate(seed, None, setting)


def explain(report: Report) -> str:
    """Everything that is needed to see a failing seed again."""
    setting = report.setting
    small = shrink(report.plan, lambda plan: bool(simulate(report.seed, plan, setting).problem))
    again = simulate(report.seed, small, setting)
    if not again.problem:  # what it needs is the whole plan
        small, again = report.plan, report
    again_with = f"make sim SEED={report.seed}{setting}"
    command = f'{again_with} PLAN="{text_of(small)}"'
    lines = [
        f"seed {report.seed}: {report.problem}",
        f"  to repeat it: {again_with}",
        f"  with {len(small)} of its {len(report.plan)} faults: {command}",
        f"  then it says: {again.problem}" if again.problem != report.problem else "",
        f"  python {sys.version.split()[0]}, the last of its trace:",
        *(f"    {line}" for line in again.tail),
    ]
    return "\n".join(filter(None, lines))


def text_of(plan: Iterable[Fault]) -> str:
    return ",".join(map(str, plan)) or "none"


def happened(reports: Iterable[Report]) -> Counter[str]:
    """How often each kind of thing came to pass, over all seeds."""
    return sum((report.happened for report in reports), Counter())
