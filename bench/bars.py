"""What the project demands of itself. Whether a bar is reached is computed from the figures, never written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench import workloads
from bench.figures import Figures, Range
from bench.systems import PEERS, PERDURE, PERDURE_POSTGRESQL, System
from bench.workloads import SHARED, Workload

Value = Callable[[Figures], Range | None]

#: A timer that is due together with four times as many others may be this much later than four times as late.
LINEAR = 1.25


@dataclass(frozen=True)
class Bar:
    what: str
    kind: Literal["at least", "at most"]
    limit: float
    unit: str
    workload: Workload
    value: Value
    system: System = PERDURE

    def judge(self, figures: Figures) -> Verdict:
        sign = "≥" if self.kind == "at least" else "≤"
        wanted = f"{sign} {self.limit:g} {self.unit}".strip()
        if not _is_whole(figures, self.workload, self.system):
            return Verdict(self.what, wanted, "measured with smaller counts", None)
        found = self.value(figures)
        if found is None:
            return Verdict(self.what, wanted, "not measured", None)
        reached = found.median >= self.limit if self.kind == "at least" else found.median <= self.limit
        return Verdict(self.what, wanted, f"{shown(found)} {self.unit}".strip(), reached)


@dataclass(frozen=True)
class Verdict:
    what: str
    wanted: str
    found: str
    #: None where nothing was measured.
    reached: bool | None

    @property
    def mark(self) -> str:
        return {True: "reached", False: "NOT reached", None: "not judged"}[self.reached]


def shown(range_: Range) -> str:
    """The median, with the range of the rounds if there were several."""
    if len(range_.values) == 1:
        return number(range_.median)
    return f"{number(range_.median)} ({number(range_.low)} to {number(range_.high)})"


def number(value: float) -> str:
    """Three figures that mean something, and no more."""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def judge_all(figures: Figures, peers: Sequence[System] = PEERS) -> list[Verdict]:
    """Every bar, in the order of the page."""
    verdicts = [bar.judge(figures) for bar in (*OWN_BARS, *POSTGRESQL_BARS)]
    for peer in peers:
        verdicts += [bar.judge(figures) for bar in _bars_beside(peer)]
        verdicts.append(_ahead_everywhere(figures, peer))
        if peer.server == "postgresql":
            verdicts += [bar.judge(figures) for bar in _bars_on_one_server(peer)]
            verdicts.append(_ahead_everywhere(figures, peer, PERDURE_POSTGRESQL))
    return verdicts


def _is_whole(figures: Figures, workload: Workload, system: System = PERDURE) -> bool:
    """A bar speaks of certain counts: what was measured with fewer neither reaches nor misses it."""
    counts = figures.counts(system.name, workload.name)
    return counts is None or counts == workload.counts


# -- perdure by itself -------------------------------------------------------------------------------------------------


def _bare(workload: Workload, system: System = PERDURE) -> Value:
    return lambda figures: figures.to_bare(system.name, workload.name)


def _own(workload: Workload, figure: str = "", scale: float = 1.0, system: System = PERDURE) -> Value:
    def value(figures: Figures) -> Range | None:
        found = figures.range(system.name, workload.name, figure)
        return Range(tuple(one * scale for one in found.values)) if found else None

    return value


def _empty_beyond_two_commits(system: System) -> Value:
    """Milliseconds of an empty run that two bare commits do not explain."""

    def value(figures: Figures) -> Range | None:
        took = figures.range(system.name, "empty", "p50")
        commit = figures.bare_milliseconds(system.name, "empty")
        if took is None or commit is None:
            return None
        return Range(tuple(one - 2 * bare for one, bare in zip(took.values, commit.values, strict=True)))

    return value


_TIMES = "x bare commits"

OWN_BARS = (
    Bar("seq: steps of one run", "at least", 0.5, _TIMES, workloads.SEQ, _bare(workloads.SEQ)),
    Bar("seq, the harder bar", "at least", 0.75, _TIMES, workloads.SEQ, _bare(workloads.SEQ)),
    Bar("many: steps of many runs", "at least", 6, _TIMES, workloads.MANY, _bare(workloads.MANY)),
    Bar("many, the harder bar", "at least", 10, _TIMES, workloads.MANY, _bare(workloads.MANY)),
    Bar("fanout: steps of one run at once", "at least", 12, _TIMES, workloads.FANOUT, _bare(workloads.FANOUT)),
    Bar(
        "empty: p50 beyond two bare commits", "at most", 0.3, "ms", workloads.EMPTY, _empty_beyond_two_commits(PERDURE)
    ),
    Bar(
        "journal: rebuilding a run of 10,000 steps",
        "at most",
        0.5,
        "s",
        workloads.JOURNAL,
        _own(workloads.JOURNAL, "seconds"),
    ),
    Bar("journal: each recorded step", "at most", 15, "µs", workloads.JOURNAL, _own(workloads.JOURNAL, "each")),
    Bar("long: last steps beside first steps", "at most", 1.1, "x", workloads.LONG, _own(workloads.LONG, "growth")),
    Bar(
        "crowd: a step beside 200,000 other runs and beside 10",
        "at most",
        1.2,
        "x",
        workloads.CROWD,
        _own(workloads.CROWD),
    ),
    Bar(
        "waiting: memory of a resident run",
        "at most",
        6,
        "KB",
        workloads.WAITING,
        _own(workloads.WAITING, "resident", 1 / 1000),
    ),
    Bar(
        "waiting: process with 20,000 evicted runs",
        "at most",
        200,
        "MB",
        workloads.WAITING,
        _own(workloads.WAITING, "evicted_mb"),
    ),
    Bar(
        "waiting: restart with them, ready for work",
        "at most",
        3,
        "s",
        workloads.WAITING,
        _own(workloads.WAITING, "ready"),
    ),
    Bar(
        "due: lateness per timer, all beside a quarter",
        "at most",
        LINEAR,
        "x",
        workloads.DUE,
        _own(workloads.DUE, "per_timer_growth"),
    ),
    Bar(
        "due: memory of one more timer", "at most", 1, "KB", workloads.DUE, _own(workloads.DUE, "bytes_each", 1 / 1000)
    ),
    Bar("import perdure", "at most", 100, "ms", workloads.IMPORT, _own(workloads.IMPORT, "best")),
)

# -- perdure on PostgreSQL ---------------------------------------------------------------------------------------------


def _on_postgresql(
    what: str,
    kind: Literal["at least", "at most"],
    limit: float,
    unit: str,
    workload: Workload,
    figure: str = "",
    scale: float = 1.0,
) -> Bar:
    value = _own(workload, figure, scale, PERDURE_POSTGRESQL)
    return Bar(f"PostgreSQL, {workload.name}: {what}", kind, limit, unit, workload, value, PERDURE_POSTGRESQL)


def _beside_bare(workload: Workload, limit: float) -> Bar:
    value = _bare(workload, PERDURE_POSTGRESQL)
    what = f"PostgreSQL, {workload.name}: {workload.unit.partition('/')[0]}"
    return Bar(what, "at least", limit, _TIMES, workload, value, PERDURE_POSTGRESQL)


POSTGRESQL_BARS = (
    _beside_bare(workloads.MANY, 8),
    _beside_bare(workloads.SEQ, 0.7),
    _beside_bare(workloads.FANOUT, 10),
    Bar(
        "PostgreSQL, empty: p50 beyond two bare commits",
        "at most",
        0.5,
        "ms",
        workloads.EMPTY,
        _empty_beyond_two_commits(PERDURE_POSTGRESQL),
        PERDURE_POSTGRESQL,
    ),
    _on_postgresql("the server's processor for a step", "at most", 25, "µs", workloads.MANY, "server_us"),
    _on_postgresql("WAL of a step", "at most", 700, "bytes", workloads.MANY, "wal_bytes"),
    _on_postgresql("updates of runs that are HOT", "at least", 80, "%", workloads.MANY, "hot", 100),
    _on_postgresql("a step beside 500,000 finished runs and beside none", "at most", 1.2, "x", workloads.GROWTH),
    _on_postgresql("a claim, the same", "at most", 1.2, "x", workloads.GROWTH, "claims"),
    _on_postgresql("a step beside 200,000 runs, planned before", "at most", 1.3, "x", workloads.PLANS),
    _on_postgresql("an event, the same", "at most", 1.3, "x", workloads.PLANS, "events"),
    _on_postgresql("a child, the same", "at most", 1.3, "x", workloads.PLANS, "children"),
    _on_postgresql("a claim, the same", "at most", 1.3, "x", workloads.PLANS, "claims"),
    _on_postgresql("an empty claim after 100,000", "at most", 2, "ms", workloads.SNAPSHOT, "empty_ms"),
    _on_postgresql("a turn of one run after 20,000", "at most", 1, "ms", workloads.SNAPSHOT, "turn_ms"),
    _on_postgresql("two workers, steps of 0.5 ms", "at least", 1.6, "x one", workloads.FLEET, "busy"),
    _on_postgresql("two workers, trivial steps", "at least", 0.9, "x one", workloads.FLEET, "trivial"),
    _on_postgresql("the largest share of four workers", "at most", 2, "x the mean", workloads.FLEET, "share"),
    _on_postgresql("an event wakes a run elsewhere, p50", "at most", 30, "ms", workloads.PUSH, "p50"),
    _on_postgresql("the same, p99", "at most", 200, "ms", workloads.PUSH, "p99"),
    _on_postgresql("the same without push, the longest", "at most", 1.2, "s", workloads.PUSH, "polled_max", 1 / 1000),
    _on_postgresql("commits while others are told", "at least", 0.95, "x silent", workloads.PUSH, "told"),
)

# -- beside others -----------------------------------------------------------------------------------------------------

#: How many times better than a family of systems, by workload. Both compared wait for the disk in every commit.
BESIDE: dict[str, tuple[tuple[Workload, float], ...]] = {
    "dbos": (
        (workloads.SEQ, 5),
        (workloads.MANY, 50),
        (workloads.FANOUT, 50),
        (workloads.REPLAY, 10),
        (workloads.EMPTY, 10),
    ),
    "restate": ((workloads.SEQ, 2), (workloads.MANY, 8)),
}
#: The same of perdure on PostgreSQL, beside each system on that server.
ON_ONE_SERVER = ((workloads.SEQ, 5), (workloads.MANY, 20))


def _bars_beside(peer: System) -> list[Bar]:
    return [
        Bar(f"{workload.name}: beside {peer.title}", "at least", times, "x", workload, _advantage(peer, workload))
        for workload, times in BESIDE.get(peer.adapter, ())
    ]


def _bars_on_one_server(peer: System) -> list[Bar]:
    ours = PERDURE_POSTGRESQL
    return [
        Bar(f"{ours.title}, {workload.name}: beside {peer.title}", "at least", times, "x", workload,
            _advantage(peer, workload, ours), ours)
        for workload, times in ON_ONE_SERVER
    ]  # fmt: skip


def _advantage(peer: System, workload: Workload, ours: System = PERDURE) -> Value:
    return lambda figures: figures.advantage(ours.name, peer.name, workload)


def _ahead_everywhere(figures: Figures, peer: System, ours: System = PERDURE) -> Verdict:
    """Ahead on every workload that the other does too. The narrowest is shown."""
    who = "" if ours is PERDURE else f"{ours.title}, "
    what, wanted = f"{who}every workload: ahead of {peer.title}", "> 1 x"
    compared = {
        workload.name: found
        for workload in SHARED
        if _is_whole(figures, workload, ours) and (found := figures.advantage(ours.name, peer.name, workload))
    }
    if not compared:
        return Verdict(what, wanted, "not measured", None)
    ahead = sum(found.median > 1 for found in compared.values())
    narrowest = min(compared, key=lambda name: compared[name].median)
    text = f"{ahead} of {len(compared)}; narrowest {narrowest}, {shown(compared[narrowest])} x"
    return Verdict(what, wanted, text, ahead == len(compared))
