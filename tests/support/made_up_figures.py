"""Figures that nobody measured, to test what is made of figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.figures import Figures, Outcome, Sample
from bench.systems import DBOS_SQLITE, PERDURE
from bench.workloads import ALL


def sample(
    system: str, workload: str, raw: Mapping[str, Any], *, number: int = 0, bare: float = 1_000.0, bare_ms: float = 1.0
) -> Sample:
    """With the counts of `make bench`, so that the bars speak of it."""
    counts = ALL[workload].counts_for(system, "full")
    return Sample(system, workload, number, counts, raw=raw, bare=bare, bare_ms=bare_ms)


def rate(system: str, workload: str, per_second: float, **more: Any) -> Sample:
    return sample(system, workload, {"count": per_second, "seconds": 1.0}, **more)


def figures(*samples: Sample, **more: Any) -> Figures:
    return Figures(Outcome(samples, **more))


def whole() -> Figures:
    """An outcome in which something of everything happens: figures, a refusal, a failure, a missing system."""
    return figures(
        rate("perdure", "seq", 800.0),
        rate("perdure", "seq", 900.0, number=1),
        rate("perdure", "seq", 700.0, number=2),
        rate("dbos-sqlite", "seq", 100.0),
        rate("dbos-sqlite", "seq", 90.0, number=1),
        rate("dbos-sqlite", "seq", 140.0, number=2),
        sample("perdure", "empty", {"samples_ms": [1.0, 2.0, 3.0]}),
        Sample("dbos-sqlite", "empty", 0, {}, refused="it <never> ends | or does it"),
        Sample("dbos-sqlite", "many", 0, {}, failed="no answer in 5 s"),
        limits={"SQLite, one-row commits at FULL": [1_000.0, 1_200.0, 900.0]},
        bare=[1_000.0, 1_100.0],
        machine={"cores": "2"},
        versions={"perdure": "1", "dbos-sqlite": "2"},
        missing={"restate": "not installed: npm is not there"},
    )


SYSTEMS = (PERDURE, DBOS_SQLITE)
