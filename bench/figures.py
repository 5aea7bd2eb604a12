"""From raw samples to figures: medians, ranges, ratios. Pure; knows no system and no clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import workloads
from bench.workloads import Workload


@dataclass(frozen=True)
class Sample:
    """One run of one workload on one system. Exactly one of `raw`, `refused` and `failed` says how it ended."""

    system: str
    workload: str
    round: int
    counts: Mapping[str, int]
    raw: Mapping[str, Any] | None = None
    #: The system does not do this; the reason.
    refused: str = ""
    #: It was tried and did not end well; what was seen.
    failed: str = ""
    #: Bare commits per second, and what the median one took: the mean of just before and just after. To the PostgreSQL
    #: server, if the system is on it, else to SQLite.
    bare: float = 0.0
    bare_ms: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Everything of one `make bench`."""

    samples: Sequence[Sample]
    #: Limits by name, one value per round.
    limits: Mapping[str, Sequence[float]] = field(default_factory=dict)
    #: Every measurement of the bare commits to SQLite, in the order they were made.
    bare: Sequence[float] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    #: By system: its version, or why it could not be installed.
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    #: The same of the bare commits to PostgreSQL.
    bare_postgresql: Sequence[float] = ()


@dataclass(frozen=True)
class Range:
    """Several rounds of one figure."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)


def percentile(values: Iterable[float], share: float) -> float:
    """The nearest rank: always a value that was measured."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]


def figures_of(workload: str, raw: Mapping[str, Any]) -> dict[str, float]:
    """The figures of one sample, by name. The one that counts is named by the workload."""
    found: dict[str, float] = {}
    match workload:
        case "seq" | "many" | "fanout" | "events" | "recover" | "children" | "io" | "threads":
            found["rate"] = raw["count"] / raw["seconds"]
            found["seconds"] = raw["seconds"]
        case "payload":
            for size, part in raw.items():
                found[size] = part["count"] / part["seconds"]
        case "replay":
            found["back"] = raw["seconds"] * 1000
            found["each"] = raw["seconds"] / raw["count"] * 1e6
        case "journal":
            found["seconds"] = raw["seconds"]
            found["each"] = raw["seconds"] / raw["count"] * 1e6
        case "long":
            found["first"], found["last"] = raw["first_us"], raw["last_us"]
            found["growth"] = raw["last_us"] / raw["first_us"]
        case "waiting":
            found["resident"], found["evicted"] = raw["resident_bytes"], raw["evicted_bytes"]
            found["evicted_mb"] = raw["evicted_mb"]
            if raw["ready_seconds"] is not None:
                found["ready"] = raw["ready_seconds"]
        case "crowd":
            few, many = ([probe["step_us"] for probe in raw[size]] for size in ("few", "many"))
            found["few"], found["many"] = statistics.median(few), statistics.median(many)
            # Pairs were measured one after the other: their ratios, not the ratio of two medians.
            found["growth"] = statistics.median(more / less for less, more in zip(few, many, strict=True))
        case "due":
            every, quarters = raw["all"], raw["quarters"]
            found["last"] = every["late_ms"] / 1000
            found["per_timer_growth"] = (every["late_ms"] / every["count"]) / statistics.mean(
                quarter["late_ms"] / quarter["count"] for quarter in quarters
            )
            found["peak_mb"] = every["peak_mb"]
            more = every["count"] - quarters[0]["count"]
            peak_of_quarter = statistics.mean(quarter["peak_mb"] for quarter in quarters)
            found["bytes_each"] = max(0.0, every["peak_mb"] - peak_of_quarter) * 2**20 / more
        case "growth" | "plans":
            for name in ("steps", "events", "children", "claims"):
                found |= _beside(raw[name]["many"], raw[name]["few"], name)
                found[f"{name}_us"] = statistics.median(raw[name]["many"]) * 1e6
        case "snapshot":
            found |= {name: value for name, value in raw.items() if name.endswith(("_ms", "_us"))}
        case "fleet":
            for name in ("busy", "trivial"):
                found |= _beside(raw[name]["two"], raw[name]["one"], name)
                found[f"{name}_rate"] = statistics.median(raw[name]["one"])
            # The worst of the rounds: what one worker got, to what each would have got.
            found["share"] = max(max(shares) * len(shares) / sum(shares) for shares in raw["shares"])
        case "push":
            found["p50"], found["p99"] = (percentile(raw["pushed_ms"], share) for share in (0.5, 0.99))
            found["polled_p50"], found["polled_max"] = statistics.median(raw["polled_ms"]), max(raw["polled_ms"])
            found |= _beside(raw["told"], raw["silent"], "told")
        case _:
            pass
    if samples := raw.get("samples_ms"):
        found["p50"], found["p99"] = percentile(samples, 0.5), percentile(samples, 0.99)
        found["best"] = min(samples)
    for name in ("bytes_each", "server_us", "wal_bytes", "hot"):
        if raw.get(name) is not None:
            found[name] = raw[name]
    return found


def _beside(ones: Sequence[float], others: Sequence[float], name: str) -> dict[str, float]:
    """The ratio of the two, of pairs that were measured after each other: median, lowest and highest."""
    ratios = [one / other for one, other in zip(ones, others, strict=True)]
    return {name: statistics.median(ratios), f"{name}_low": min(ratios), f"{name}_high": max(ratios)}


class Figures:
    """Questions about an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._rounds: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
        self._bare: dict[tuple[str, str], dict[int, Sample]] = {}
        for sample in outcome.samples:
            if sample.raw is not None:
                key = sample.system, sample.workload
                self._rounds.setdefault(key, {})[sample.round] = figures_of(sample.workload, sample.raw)
                self._bare.setdefault(key, {})[sample.round] = sample

    def counts(self, system: str, workload: str) -> Mapping[str, int] | None:
        """The counts of the samples; None if there are none."""
        return next(
            (
                sample.counts
                for sample in self.outcome.samples
                if (sample.system, sample.workload) == (system, workload)
            ),
            None,
        )

    def range(self, system: str, workload: str, figure: str = "") -> Range | None:
        """A figure over the rounds; the one that counts if none is named. None if it was not measured."""
        figure = figure or workloads.ALL[workload].figure
        rounds = self._rounds.get((system, workload), {})
        values = tuple(found[figure] for found in rounds.values() if figure in found)
        return Range(values) if values else None

    def to_bare(self, system: str, workload: str, figure: str = "") -> Range | None:
        """A rate as a multiple of the bare commits measured beside it."""
        figure = figure or workloads.ALL[workload].figure
        rounds = self._rounds.get((system, workload), {})
        bare = self._bare.get((system, workload), {})
        values = tuple(found[figure] / bare[number].bare for number, found in rounds.items() if bare[number].bare)
        return Range(values) if values else None

    def bare_milliseconds(self, system: str, workload: str) -> Range | None:
        """What the median bare commit took beside this workload."""
        values = tuple(sample.bare_ms for sample in self._bare.get((system, workload), {}).values())
        return Range(values) if values else None

    def advantage(self, ours: str, theirs: str, workload: Workload) -> Range | None:
        """How many times better `ours` is, round by round. None if there is no round with both."""
        mine = self._rounds.get((ours, workload.name), {})
        other = self._rounds.get((theirs, workload.name), {})
        values = []
        for number in sorted(mine.keys() & other.keys()):
            our, their = mine[number][workload.figure], other[number][workload.figure]
            # A timer is never early, so zero means less than the clock shows.
            values.append(our / max(their, 1e-6) if workload.better == "higher" else their / max(our, 1e-6))
        return Range(tuple(values)) if values else None

    def why_not(self, system: str, workload: str) -> str:
        """Why a figure is missing; empty if it is not, or was never asked for."""
        if system in self.outcome.missing:
            return self.outcome.missing[system]
        for sample in self.outcome.samples:
            if (sample.system, sample.workload) == (system, workload):
                if sample.refused:
                    return f"does not do this: {sample.refused}"
                if sample.failed:
                    return f"failed: {sample.failed}"
        return ""
