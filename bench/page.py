"""bench/RESULTS.md: everything a reader needs to believe the figures, or not."""

from __future__ import annotations

from collections.abc import Sequence

from bench.bars import judge_all, number, shown
from bench.figures import Figures, Range
from bench.machine import LOAD
from bench.systems import PERDURE, System
from bench.table import alone, cell, compared, heading, ratio, to_bare
from bench.workloads import ALONE, COLUMNS, SHARED, Workload

#: Figures beside the one that counts, where a workload has them: name, unit, factor.
MORE = {
    "many": (
        ("server_us", "µs of the server a step", 1.0),
        ("wal_bytes", "bytes of WAL", 1.0),
        ("hot", "% of updates HOT", 100.0),
    ),
    "empty": (("p99", "ms", 1.0),),
    "events": (("p50", "ms p50", 1.0), ("p99", "ms p99", 1.0)),
    "timers": (("p99", "ms late p99", 1.0), ("bytes_each", "KB each", 1 / 1000)),
    "replay": (("each", "µs a recorded step", 1.0),),
    "payload": (("20k", "steps/s at 20 kB", 1.0),),
    "recover": (("seconds", "s in all", 1.0),),
    "long": (("first", "µs at the start", 1.0), ("growth", "x", 1.0)),
    "journal": (("seconds", "s in all", 1.0),),
    "waiting": (("evicted", "bytes evicted", 1.0), ("evicted_mb", "MB in all", 1.0), ("ready", "s to restart", 1.0)),
    "crowd": (("few", "µs a step beside few", 1.0), ("many", "µs beside many", 1.0)),
    "due": (
        ("per_timer_growth", "x per timer", 1.0),
        ("peak_mb", "MB at most", 1.0),
        ("bytes_each", "bytes more each", 1.0),
    ),
    "growth": (
        ("events", "x an event", 1.0),
        ("children", "x a child", 1.0),
        ("claims", "x a claim", 1.0),
        ("claims_us", "µs a claim", 1.0),
    ),
    "plans": (
        ("events", "x an event", 1.0),
        ("children", "x a child", 1.0),
        ("claims", "x a claim", 1.0),
    ),
    "snapshot": (
        ("empty_before_ms", "ms before", 1.0),
        ("claim_us", "µs a claim", 1.0),
        ("claim_after_us", "µs a claim afterwards", 1.0),
        ("turn_first_ms", "ms a turn at first", 1.0),
        ("turn_ms", "ms a turn in the end", 1.0),
    ),
    "fleet": (
        ("busy_low", "at least", 1.0),
        ("busy_high", "at most", 1.0),
        ("trivial", "x with trivial steps", 1.0),
        ("share", "x the mean: the largest share of four", 1.0),
    ),
    "push": (
        ("p99", "ms p99", 1.0),
        ("polled_p50", "ms p50 without push", 1.0),
        ("polled_max", "ms at most", 1.0),
        ("told", "x the commits of silence", 1.0),
    ),
}


def page(figures: Figures, systems: Sequence[System], plot_name: str) -> str:
    peers = [system for system in systems if system.adapter != PERDURE.adapter]
    sections = [
        _head(figures, plot_name, bool(peers)),
        _bars(figures, peers),
        *(_ratios(figures, peers, ours) for ours in compared(figures) if peers),
        _figures(figures, systems),
        _alone(figures),
        _limits(figures),
        _systems(figures, systems),
        _reasons(figures, systems),
        _ranges(figures, systems),
        _workloads(systems),
    ]
    return "\n".join(section for section in sections if section)


def _head(figures: Figures, plot_name: str, compared: bool) -> str:
    facts = _table(("machine", ""), [(name, value) for name, value in figures.outcome.machine.items()])
    picture = f"![How many times better perdure is than each system, by workload]({plot_name})\n\n" if compared else ""
    return (
        "# Results\n\n"
        "Written by `make bench`. How to read it, and what the workloads are:\n"
        "[Performance](../docs/why/performance.md). Every figure is the median of the rounds. Those of one line were\n"
        "taken right after each other, and the bare commits before and after each of them.\n\n"
        f"{_caution(figures)}{picture}{facts}"
    )


def _caution(figures: Figures) -> str:
    """Said by the page itself, if its figures should not be relied on."""
    facts = figures.outcome.machine
    load, cores = facts.get(LOAD, "0").partition(",")[0], facts.get("cores", "1")
    rounds = len({sample.round for sample in figures.outcome.samples})
    reasons = []
    if float(load) > int(cores) / 2:
        reasons.append(f"the machine was busy (a load of {load} on {cores} cores)")
    if rounds < 3:
        reasons.append("there were fewer than three rounds")
    return f"**Provisional:** {' and '.join(reasons)}.\n\n" if reasons else ""


def _bars(figures: Figures, peers: Sequence[System]) -> str:
    verdicts = judge_all(figures, peers)
    rows = [(verdict.what, verdict.wanted, verdict.found, verdict.mark) for verdict in verdicts]
    reached = sum(verdict.reached is True for verdict in verdicts)
    judged = sum(verdict.reached is not None for verdict in verdicts)
    return f"## Bars\n\n{reached} of {judged} reached.\n\n" + _table(("what", "bar", "found", ""), rows)


def _ratios(figures: Figures, peers: Sequence[System], ours: System) -> str:
    rows = [
        (workload.name, to_bare(figures, ours, workload), *(ratio(figures, ours, peer, workload) for peer in peers))
        for workload in SHARED
    ]
    title = f"## How many times better: {ours.title}\n\n"
    return title + _table(("workload", "bare commits", *(peer.title for peer in peers)), rows)


def _figures(figures: Figures, systems: Sequence[System]) -> str:
    rows = [(heading(workload), *(_with_more(figures, system, workload) for system in systems)) for workload in COLUMNS]
    return "## Figures\n\n" + _table(("workload", *(system.title for system in systems)), rows)


def _alone(figures: Figures) -> str:
    rows = [
        (workload.name, system.title, _with_more(figures, system, workload, workload.unit), workload.what)
        for workload, system in alone(figures)
    ]
    return "## perdure alone\n\n" + _table(("workload", "store", "figures", "what"), rows) if rows else ""


def _with_more(figures: Figures, system: System, workload: Workload, unit: str = "") -> str:
    text = f"{cell(figures, system, workload)} {unit}".strip()
    more = []
    for name, its_unit, factor in MORE.get(workload.name, ()):
        found = figures.range(system.name, workload.name, name)
        if found is not None:
            more.append(f"{number(found.median * factor)} {its_unit}")
    return f"{text} ({', '.join(more)})" if more else text


def _limits(figures: Figures) -> str:
    rows = [(name, shown(Range(tuple(values)))) for name, values in figures.outcome.limits.items()]
    for what, bare in (
        ("SQLite, one-row commits at FULL", figures.outcome.bare),
        ("PostgreSQL, one-row commits", figures.outcome.bare_postgresql),
    ):
        if bare:
            rows.append((f"{what}, the {len(bare)} measurements in between", shown(Range(tuple(bare)))))
    return "## Limits, per second\n\n" + _table(("what", "median (range)"), rows)


def _systems(figures: Figures, systems: Sequence[System]) -> str:
    rows = [
        (
            system.title,
            figures.outcome.versions.get(system.name, figures.outcome.missing.get(system.name, "")),
            system.durability,
            system.setup,
        )
        for system in systems
    ]
    return "## Systems\n\n" + _table(("system", "version", "a commit survives", "set up with"), rows)


def _reasons(figures: Figures, systems: Sequence[System]) -> str:
    rows = [
        (system.title, workload.name, reason)
        for system in systems
        for workload in (*COLUMNS, *ALONE)
        if (reason := figures.why_not(system.name, workload.name))
    ]
    return "## What is missing, and why\n\n" + _table(("system", "workload", "reason"), rows) if rows else ""


def _ranges(figures: Figures, systems: Sequence[System]) -> str:
    rows = []
    for workload in COLUMNS:
        for system in systems:
            found = figures.range(system.name, workload.name)
            if found is not None and len(found.values) > 1:
                rows.append(
                    (heading(workload), system.title, number(found.low), number(found.median), number(found.high))
                )
    title = "## Ranges over the rounds\n\n"
    return title + _table(("workload", "system", "lowest", "median", "highest"), rows) if rows else ""


def _workloads(systems: Sequence[System]) -> str:
    rows = []
    for workload in COLUMNS:
        ours = workload.counts_for(PERDURE.name, "full")
        others = [
            f"{system.title}: {_counts(workload.counts_for(system.name, 'full'))}"
            for system in systems
            if workload.counts_for(system.name, "full") != ours
        ]
        rows.append((workload.name, workload.what, _counts(ours), "; ".join(others)))
    rows += [(workload.name, workload.what, _counts(workload.counts), "") for workload in ALONE]
    return "## Workloads\n\n" + _table(("workload", "what", "counts", "fewer, because it takes minutes"), rows)


def _counts(counts: object) -> str:
    assert isinstance(counts, dict)
    return ", ".join(f"{name} {value:,}" for name, value in counts.items())


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
