"""The tables of the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.bars import Verdict, judge_all, number
from bench.figures import Figures
from bench.systems import OWN, PERDURE, PERDURE_POSTGRESQL, System
from bench.workloads import ALONE, COLUMNS, SHARED, Workload


def show(figures: Figures, systems: Sequence[System], console: Console) -> None:
    console.print(limits_table(figures))
    console.print(figures_table(figures, systems))
    peers = [system for system in systems if system.adapter != PERDURE.adapter]
    if peers:
        for ours in compared(figures):
            console.print(ratios_table(figures, peers, ours))
    console.print(alone_table(figures))
    console.print(bars_table(judge_all(figures, peers)))


def limits_table(figures: Figures) -> Table:
    table = _table("limits, per second", "what", "median", "range")
    for name, values in figures.outcome.limits.items():
        ordered = sorted(values)
        table.add_row(name, number(ordered[len(ordered) // 2]), f"{number(ordered[0])} to {number(ordered[-1])}")
    return table


def figures_table(figures: Figures, systems: Sequence[System]) -> Table:
    table = _table("figures: median of the rounds", "workload", *(system.title for system in systems))
    for workload in COLUMNS:
        table.add_row(heading(workload), *(cell(figures, system, workload) for system in systems))
    return table


def compared(figures: Figures) -> list[System]:
    """The stores of perdure that stand beside others: the two that people use, as far as they were measured."""
    return [
        ours for ours in (PERDURE, PERDURE_POSTGRESQL) if any(figures.range(ours.name, each.name) for each in SHARED)
    ]


def ratios_table(figures: Figures, peers: Sequence[System], ours: System) -> Table:
    """How many times better one of ours is than each of the others."""
    table = _table(f"{ours.title}: times better than", "workload", "bare commits", *(peer.title for peer in peers))
    for workload in SHARED:
        cells = [ratio(figures, ours, peer, workload) for peer in peers]
        table.add_row(workload.name, to_bare(figures, ours, workload), *cells)
    return table


def alone_table(figures: Figures) -> Table:
    table = _table("perdure alone", "workload", "store", "figure", "what")
    for workload, system in alone(figures):
        table.add_row(workload.name, system.title, f"{cell(figures, system, workload)} {workload.unit}", workload.what)
    return table


def alone(figures: Figures) -> list[tuple[Workload, System]]:
    """What was measured for perdure alone, and on which of its stores."""
    return [
        (workload, system)
        for workload in ALONE
        for system in OWN
        if figures.range(system.name, workload.name) or figures.why_not(system.name, workload.name)
        if system.name in workload.systems
    ]


def bars_table(verdicts: Sequence[Verdict]) -> Table:
    table = _table("bars", "what", "bar", "found", "")
    for verdict in verdicts:
        table.add_row(verdict.what, verdict.wanted, verdict.found, verdict.mark)
    return table


def heading(workload: Workload) -> str:
    return f"{workload.name} ({workload.unit})"


def cell(figures: Figures, system: System, workload: Workload) -> str:
    found = figures.range(system.name, workload.name)
    if found is not None:
        return number(found.median)
    reason = figures.why_not(system.name, workload.name)
    return (
        "-"
        if not reason
        else "n/a"
        if reason.startswith("does not")
        else "missing"
        if "install" in reason
        else "failed"
    )


def ratio(figures: Figures, ours: System, peer: System, workload: Workload) -> str:
    found = figures.advantage(ours.name, peer.name, workload)
    return number(found.median) if found else cell(figures, peer, workload)


def to_bare(figures: Figures, system: System, workload: Workload) -> str:
    found = figures.to_bare(system.name, workload.name) if workload.unit == "steps/s" else None
    return number(found.median) if found else ""


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table
