"""What is measured. One definition for every system; an adapter has a function of the same name for each it can do.

A workload takes counts. `counts` are those of perdure, `peers` those of the slower systems (a rate does not depend on
them, and a figure that does is compared per step), `quick` those of `make bench-quick`, `tiny` those of the tests.
`times`: what takes a moment is done as often, and the median counts; what takes seconds has its moments in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    what: str
    counts: Counts
    quick: Counts
    tiny: Counts
    #: The figure by which systems are compared: its name, its unit, and which way is better.
    figure: str
    unit: str
    better: Literal["higher", "lower"]
    #: Counts of named systems where those of perdure would take minutes.
    peers: Mapping[str, Counts] = field(default_factory=dict)
    #: Killed with SIGKILL in its first life, measured in its second.
    killed: bool = False
    #: Measured for perdure alone, on these of its stores.
    alone: bool = False
    systems: tuple[str, ...] = ("perdure", "perdure-postgresql")
    #: Its adapter uses what is inside of perdure, so that it goes with one version of it.
    inside: bool = False
    #: Other figures that `bench.compare` shows as well, in the same unit.
    also: tuple[str, ...] = ()

    def counts_for(self, system: str, size: Literal["full", "quick", "tiny"]) -> Counts:
        if size != "full":
            return self.quick if size == "quick" else self.tiny
        family = system.partition("-")[0]
        return self.peers.get(system, self.peers.get(family, self.counts))


SEQ = Workload(
    "seq",
    "one run, one step after another",
    counts={"steps": 1_000, "times": 5},
    quick={"steps": 1_000, "times": 5},
    tiny={"steps": 10, "times": 2},
    figure="rate",
    unit="steps/s",
    better="higher",
    peers={
        "dbos": {"steps": 500},
        "duroxide": {"steps": 200},
        "absurd": {"steps": 500},
        "restate": {"steps": 1_000},
    },
)
MANY = Workload(
    "many",
    "many runs of 5 steps, started together",
    counts={"runs": 1_000, "steps": 5, "times": 5},
    quick={"runs": 1_000, "steps": 5, "times": 5},
    tiny={"runs": 10, "steps": 5, "times": 2},
    figure="rate",
    unit="steps/s",
    better="higher",
    peers={
        "dbos-sqlite": {"runs": 100, "steps": 5},
        "dbos-postgresql": {"runs": 300, "steps": 5},
        "duroxide": {"runs": 100, "steps": 5},
        "absurd": {"runs": 300, "steps": 5},
        "restate": {"runs": 1_000, "steps": 5},
    },
)
FANOUT = Workload(
    "fanout",
    "one run, all steps at once",
    counts={"steps": 1_000, "times": 5},
    quick={"steps": 1_000, "times": 5},
    tiny={"steps": 10, "times": 2},
    figure="rate",
    unit="steps/s",
    better="higher",
    peers={
        "dbos": {"steps": 500},
        "duroxide": {"steps": 200},
        "absurd": {"steps": 1_000},
        "restate": {"steps": 1_000},
    },
)
EMPTY = Workload(
    "empty",
    "start to result of a run without steps, one at a time",
    # For as long as its slower peers take for theirs: the disk is not the same from one tenth of a second to the next.
    counts={"runs": 1_500},
    quick={"runs": 300},
    tiny={"runs": 10},
    figure="p50",
    unit="ms",
    better="lower",
    peers={"dbos": {"runs": 100}, "duroxide": {"runs": 30}, "absurd": {"runs": 30}, "restate": {"runs": 300}},
)
EVENTS = Workload(
    "events",
    "waiting runs, one event each, sent together: events/s, and send to finish",
    counts={"runs": 500},
    quick={"runs": 500},
    tiny={"runs": 10},
    figure="rate",
    unit="events/s",
    better="higher",
    peers={"dbos": {"runs": 100}, "duroxide": {"runs": 100}, "absurd": {"runs": 200}},
)
TIMERS = Workload(
    "timers",
    "sleeping runs that become due one after another, a thousand a second: lateness, and memory of each",
    counts={"runs": 5_000, "spread_ms": 5_000},
    quick={"runs": 1_000, "spread_ms": 1_000},
    tiny={"runs": 10, "spread_ms": 100},
    figure="p50",
    unit="ms late",
    better="lower",
    peers={
        "dbos": {"runs": 100, "spread_ms": 100},
        "duroxide": {"runs": 100, "spread_ms": 100},
        "absurd": {"runs": 250, "spread_ms": 250},
        "restate": {"runs": 500, "spread_ms": 500},
    },
)
REPLAY = Workload(
    "replay",
    "killed with recorded steps: from opening until the next step begins",
    counts={"steps": 2_000},
    quick={"steps": 2_000},
    tiny={"steps": 10},
    figure="back",
    unit="ms",
    better="lower",
    # Its steps become slower with their number: 2,000 take minutes.
    peers={"duroxide": {"steps": 500}},
    killed=True,
)
RECOVER = Workload(
    "recover",
    "killed with all runs in the middle: from opening until all are done",
    counts={"runs": 1_000, "steps": 4},
    quick={"runs": 1_000, "steps": 4},
    tiny={"runs": 10, "steps": 4},
    figure="rate",
    unit="runs/s",
    better="higher",
    peers={
        "dbos": {"runs": 100, "steps": 4},
        "duroxide": {"runs": 50, "steps": 4},
        "absurd": {"runs": 100, "steps": 4},
        "restate": {"runs": 500, "steps": 4},
    },
    killed=True,
)
CHILDREN = Workload(
    "children",
    "runs that each await a child with one step",
    counts={"runs": 1_000},
    quick={"runs": 1_000},
    tiny={"runs": 10},
    figure="rate",
    unit="parents/s",
    better="higher",
    peers={
        "dbos": {"runs": 100},
        "duroxide": {"runs": 100},
        "absurd": {"runs": 100},
        "restate": {"runs": 500},
    },
)
LONG = Workload(
    "long",
    "one run of many steps: time of a step at its end, and at its start",
    counts={"steps": 20_000, "window": 1_000},
    quick={"steps": 2_000, "window": 500},
    tiny={"steps": 30, "window": 10},
    figure="last",
    unit="µs a step",
    better="lower",
    peers={
        "dbos": {"steps": 2_000, "window": 200},
        "duroxide": {"steps": 400, "window": 100},
        "absurd": {"steps": 3_000, "window": 300},
        "restate": {"steps": 5_000, "window": 500},
    },
)

#: Those that every system is asked for, in the order of the table.
SHARED = (SEQ, MANY, FANOUT, EMPTY, EVENTS, TIMERS, REPLAY, RECOVER, CHILDREN, LONG)

PAYLOAD = Workload(
    "payload",
    "many runs of 5 steps, started together, whose results are 2 kB and then 20 kB of JSON",
    counts={"runs": 200, "steps": 5, "times": 5},
    quick={"runs": 100, "steps": 5, "times": 3},
    tiny={"runs": 4, "steps": 2, "times": 1},
    figure="2k",
    unit="steps/s",
    better="higher",
    also=("20k",),
)
IO = Workload(
    "io",
    "many runs of 5 steps, started together, that each await an answer over HTTP from the same process",
    counts={"runs": 100, "steps": 5, "times": 5},
    quick={"runs": 50, "steps": 5, "times": 3},
    tiny={"runs": 4, "steps": 2, "times": 1},
    figure="rate",
    unit="steps/s",
    better="higher",
)
THREADS = Workload(
    "threads",
    "many runs of 5 steps, started together, that are plain functions and so run in threads",
    counts={"runs": 200, "steps": 5, "times": 5},
    quick={"runs": 100, "steps": 5, "times": 3},
    tiny={"runs": 4, "steps": 2, "times": 1},
    figure="rate",
    unit="steps/s",
    better="higher",
)

#: Those that every store of perdure is measured with; the adapters of other systems have none of them.
STORES = (PAYLOAD, IO, THREADS)
#: The lines of the table that has a column for each system.
COLUMNS = (*SHARED, *STORES)

JOURNAL = Workload(
    "journal",
    "rebuilding a run from its journal: reading the rows, decoding them, running the code again; a median",
    counts={"steps": 10_000, "times": 5},
    quick={"steps": 10_000, "times": 5},
    tiny={"steps": 10, "times": 1},
    figure="each",
    unit="µs a recorded step",
    better="lower",
    alone=True,
    inside=True,
)
WAITING = Workload(
    "waiting",
    "memory of a waiting run that is resident, and of one that was evicted",
    counts={"runs": 20_000, "resident": 4_500},
    quick={"runs": 20_000, "resident": 4_500},
    tiny={"runs": 20, "resident": 10},
    figure="resident",
    unit="bytes",
    better="lower",
    alone=True,
)
CROWD = Workload(
    "crowd",
    "the cost of a step beside few and beside many other stored runs",
    counts={"few": 10, "many": 200_000, "steps": 1_000, "woken": 1_000, "rounds": 5},
    quick={"few": 10, "many": 10_000, "steps": 500, "woken": 500, "rounds": 3},
    tiny={"few": 2, "many": 20, "steps": 10, "woken": 2, "rounds": 1},
    figure="growth",
    unit="x",
    better="lower",
    alone=True,
)
DUE = Workload(
    "due",
    "timers due at the same moment: until the last has fired, and memory, for a quarter of them and for all",
    counts={"runs": 100_000},
    quick={"runs": 5_000},
    tiny={"runs": 40},
    figure="last",
    unit="s late",
    better="lower",
    alone=True,
)
IMPORT = Workload(
    "import",
    "import perdure in a new process",
    counts={"times": 6},
    quick={"times": 6},
    tiny={"times": 1},
    figure="best",
    unit="ms",
    better="lower",
    alone=True,
    systems=("perdure",),
)

#: perdure on PostgreSQL: what becomes of it when there is much, when there are several, and when others look on.
GROWTH = Workload(
    "growth",
    "steps of many runs, events, children and claims beside 500,000 finished runs, and beside none, by turns",
    counts={"finished": 500_000, "runs": 500, "claims": 2_000, "rounds": 5},
    quick={"finished": 20_000, "runs": 200, "claims": 1_000, "rounds": 3},
    tiny={"finished": 20, "runs": 10, "claims": 5, "rounds": 1},
    figure="steps",
    unit="x",
    better="lower",
    alone=True,
    systems=("perdure-postgresql",),
    also=("events", "children", "claims"),
)
PLANS = Workload(
    "plans",
    "the same beside 200,000 runs that came after the statements had been planned, without ANALYZE",
    counts={"stored": 200_000, "runs": 300, "claims": 2_000, "rounds": 5},
    quick={"stored": 20_000, "runs": 200, "claims": 1_000, "rounds": 3},
    tiny={"stored": 20, "runs": 10, "claims": 5, "rounds": 1},
    figure="steps",
    unit="x",
    better="lower",
    alone=True,
    systems=("perdure-postgresql",),
    also=("events", "children", "claims"),
)
SNAPSHOT = Workload(
    "snapshot",
    "beside an old snapshot: an empty claim after 100,000 claims, and a turn of one run after 20,000 of them",
    counts={"claims": 100_000, "steps": 20_000, "window": 1_000},
    quick={"claims": 10_000, "steps": 2_000, "window": 500},
    tiny={"claims": 20, "steps": 20, "window": 5},
    figure="empty_ms",
    unit="ms an empty claim",
    better="lower",
    alone=True,
    systems=("perdure-postgresql",),
)
FLEET = Workload(
    "fleet",
    "worker processes on one store: what two do of steps of 0.5 ms of processor time, to what one does",
    counts={"busy": 1_000, "trivial": 4_000, "runs": 2_000, "steps": 5, "rounds": 5},
    quick={"busy": 300, "trivial": 1_000, "runs": 400, "steps": 5, "rounds": 2},
    tiny={"busy": 10, "trivial": 10, "runs": 20, "steps": 2, "rounds": 1},
    figure="busy",
    unit="x one",
    better="higher",
    alone=True,
)
PUSH = Workload(
    "push",
    "an event sent by one process: until it wakes a run in another; and commits while others listen, to those without",
    counts={"events": 300, "polled": 50, "runs": 3_000, "listeners": 3, "rounds": 5},
    quick={"events": 100, "polled": 20, "runs": 1_000, "listeners": 3, "rounds": 3},
    tiny={"events": 5, "polled": 3, "runs": 20, "listeners": 1, "rounds": 1},
    figure="p50",
    unit="ms",
    better="lower",
    alone=True,
    systems=("perdure-postgresql",),
)

ALONE = (JOURNAL, WAITING, CROWD, DUE, IMPORT, GROWTH, PLANS, SNAPSHOT, FLEET, PUSH)
ALL = {workload.name: workload for workload in (*COLUMNS, *ALONE)}
