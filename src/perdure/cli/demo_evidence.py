"""What the demo knows: what steps wrote down themselves, what the journals say, and whether the two agree."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from perdure.admin.views import HistoryEntry, RunView

Place: TypeAlias = tuple[str, str]
"""A step of a run: its id and the location."""

State: TypeAlias = Literal["done", "in a step", "asleep", "waiting for Approved", "between steps"]

STEPS = ("charge", "reserve", "ship", "notify")


class Trace(msgspec.Struct, frozen=True):
    """One line of the log that steps write (`demo_orders.work`)."""

    what: Literal["begin", "done"]
    run: str
    step: str
    pid: int
    at: float


class Execution(NamedTuple):
    """One time that a step's body really ran. `end` is None if it never came to its end."""

    place: Place
    pid: int
    begin: float
    end: float | None


def read_traces(path: str) -> list[Trace]:
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        return [msgspec.json.decode(line, type=Trace) for line in file if line.endswith(b"\n")]


def executions_of(traces: Iterable[Trace]) -> list[Execution]:
    """Pair each begin with its end. A place runs at most once at a time in one process."""
    found: dict[tuple[Place, int, int], Execution] = {}
    begun: Counter[tuple[Place, int]] = Counter()
    for trace in traces:
        place = (trace.run, trace.step)
        if trace.what == "begin":
            begun[place, trace.pid] += 1
            found[place, trace.pid, begun[place, trace.pid]] = Execution(place, trace.pid, trace.at, None)
        else:
            key = (place, trace.pid, begun[place, trace.pid])
            found[key] = found[key]._replace(end=trace.at)
    return list(found.values())


class Snapshot(msgspec.Struct):
    """The store while no worker lives: right after the kill."""

    states: Mapping[str, State]
    recorded: frozenset[Place]


STATES: tuple[State, ...] = ("done", "in a step", "between steps", "asleep", "waiting for Approved")


def count_states(states: Iterable[State]) -> dict[str, int]:
    """How many are in which state, in a fixed order, without those that nobody is in."""
    counts = Counter(states)
    return {state: counts[state] for state in STATES if counts[state]}


def snapshot(views: Sequence[RunView], histories: Mapping[str, Sequence[HistoryEntry]]) -> Snapshot:
    by_id = {view.id: view for view in views}
    states: dict[str, State] = {run_id: state_of(view, by_id) for run_id, view in by_id.items() if "/" not in run_id}
    return Snapshot(states, frozenset(recorded_steps(histories)))


def state_of(view: RunView, by_id: Mapping[str, RunView]) -> State:
    """What an order is doing, seen from outside; one that waits for its child does what the child does."""
    if view.status.terminal:
        return "done"
    kinds = {wait.kind: wait for wait in view.waiting}
    if "child" in kinds:
        child = by_id.get(kinds["child"].detail)
        return state_of(child, by_id) if child is not None and not child.status.terminal else "between steps"
    if "step" in kinds:
        return "in a step"
    if "receive" in kinds:
        return "waiting for Approved"
    return "asleep" if "timer" in kinds else "between steps"


def recorded_steps(histories: Mapping[str, Sequence[HistoryEntry]]) -> list[Place]:
    return [
        (run, entry.location) for run, entries in histories.items() for entry in entries if entry.kind == "step_done"
    ]


class Check(NamedTuple):
    name: str
    ok: bool
    detail: str


class Evidence(msgspec.Struct, kw_only=True):
    """Everything measured, for the checks and the report. Times are seconds since 1970, as the machine has them."""

    expected: Mapping[str, str]
    results: Mapping[str, str]
    histories: Mapping[str, Sequence[HistoryEntry]]
    executions: Sequence[Execution]
    at_kill: Snapshot
    pids: tuple[int, int]
    first_ready: float
    killed: float
    #: The second worker: its process began, it was ready, it owned every run that had work to do.
    second_began: float
    second_ready: float
    taken_over: float
    #: Orders whose approval was sent while no worker lived.
    sent_meanwhile: Sequence[str]
    finished: float
    drained_with: int
    integrity: str

    @property
    def interrupted(self) -> list[Execution]:
        """Bodies that the kill cut off, or whose outcome it kept from being recorded."""
        first = (one for one in self.executions if one.pid == self.pids[0])
        return [one for one in first if one.place not in self.at_kill.recorded]

    def times_run(self) -> Counter[Place]:
        return Counter(one.place for one in self.executions)


def checks(evidence: Evidence) -> list[Check]:
    """The claims of the demo, each decided by what was measured."""
    right = sum(evidence.results.get(run) == result for run, result in evidence.expected.items())
    orders = len(evidence.expected)
    recorded = Counter(recorded_steps(evidence.histories))
    twice = [place for place, count in recorded.items() if count != 1]
    after = [one for one in evidence.executions if one.pid == evidence.pids[1]]
    again = [one for one in after if one.place in evidence.at_kill.recorded]
    allowed = {one.place for one in evidence.interrupted}
    strange = [p for p, n in evidence.times_run().items() if n > (2 if p in allowed else 1)]
    missing = [place for place in recorded if place not in evidence.times_run()]
    wanted = orders * len(STEPS)
    at_kill = len(evidence.at_kill.recorded)
    return [
        Check("every order has the right result", right == orders, f"{right} of {orders}"),
        Check("every step is recorded, once", len(recorded) == wanted and not twice, f"{len(recorded)} of {wanted}"),
        Check("no step recorded before the kill ran again", not again, f"{len(again)} of {at_kill} ran again"),
        Check("only interrupted steps ran a second time", not strange and not missing, f"{len(strange)} others"),
        Check("the kill came in the middle", _in_the_middle(evidence), f"{len(evidence.interrupted)} in flight"),
        Check("the second worker drained on SIGTERM", evidence.drained_with == 0, f"exit code {evidence.drained_with}"),
        Check("the database is sound", evidence.integrity == "ok", f"integrity_check: {evidence.integrity}"),
    ]  # fmt: skip


def _in_the_middle(evidence: Evidence) -> bool:
    states = Counter(evidence.at_kill.states.values())
    return states["done"] < len(evidence.expected) and bool(evidence.interrupted)
