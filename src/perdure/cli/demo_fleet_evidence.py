"""What the demo of a fleet knows: who had which run when, what steps wrote down, what the journals say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from perdure.admin.views import HistoryEntry
from perdure.cli.demo_evidence import STEPS, Check, Execution, Place, State, recorded_steps
from perdure.cli.demo_owners import Holding
from perdure.engine.settings import Settings

#: Shorter than anybody should set them, so that nobody has to wait for the demo.
TERMS = Settings(lease=3.0, heartbeat=0.9)
#: What may pass until all runs of a worker have gone on elsewhere: its lease, and a sweep of another one.
TAKE_OVER_SECONDS_MAX = TERMS.lease + 2.0


class Fall(msgspec.Struct, kw_only=True):
    """A worker that was killed or stopped, and what became of its runs."""

    number: int
    pid: int
    signal: Literal["SIGKILL", "SIGSTOP"]
    at: float
    #: When the rest of this was read: what it had done until `at` is there by then.
    seen: float
    #: Under which ids it worked before.
    ids: frozenset[str]
    #: The open runs it had, children included; those of them that had work to do; what the orders among them did.
    runs: frozenset[str]
    busy: frozenset[str]
    states: Mapping[str, State]
    #: What the journals of these runs had then.
    recorded: frozenset[Place]

    def cut_off(self, executions: Iterable[Execution]) -> list[Execution]:
        """Bodies of steps that it was in, or whose outcome was not recorded yet."""
        begun = [one for one in executions if one.pid == self.pid and one.begin <= self.seen]
        return [one for one in begun if one.place[0] in self.runs and one.place not in self.recorded]

    def freed(self, holdings: Iterable[Holding]) -> dict[str, float]:
        """When each run was its no more, in seconds after the signal."""
        ends = {one.run: one.end for one in holdings if one.owner in self.ids and one.begin <= self.seen}
        return {run: ends[run] - self.at for run in self.runs if run in ends}

    def taken(self, holdings: Iterable[Holding]) -> dict[str, tuple[float, str | None]]:
        """When each run was another worker's, and whose. None: it went on and ended between two looks."""
        found: dict[str, tuple[float, str | None]] = {}
        for one in sorted(holdings, key=lambda each: each.begin):
            if one.run not in self.runs or one.run in found or one.end <= self.at:
                continue
            if one.begin > self.at and one.owner is not None and one.owner not in self.ids:
                found[one.run] = (one.begin - self.at, one.owner)
            elif one.is_last:
                found[one.run] = (one.end - self.at, None)
        return found


class FleetEvidence(msgspec.Struct, kw_only=True):
    """Everything measured. Times are seconds since 1970 by the clock of this machine."""

    expected: Mapping[str, str]
    results: Mapping[str, str]
    histories: Mapping[str, Sequence[HistoryEntry]]
    executions: Sequence[Execution]
    holdings: Sequence[Holding]
    #: Which worker process an id was of, and when each was ready.
    numbers: Mapping[str, int]
    ready: Mapping[int, float]
    killed: Fall
    stopped: Fall
    #: When the stopped one was continued, and the journals of the runs that it had had, as they were just before.
    continued: float
    before: Mapping[str, Sequence[HistoryEntry]]
    #: When it was registered anew, and as what.
    back: float
    new_ids: frozenset[str]
    #: What it said about that.
    said: str
    sent_to_the_dead: str | None
    finished: float
    drained_with: Mapping[int, int]

    @property
    def falls(self) -> tuple[Fall, Fall]:
        return self.killed, self.stopped

    def late_ends(self) -> list[Execution]:
        """Bodies that came to an end in the stopped worker after it was continued, of runs that were another's."""
        cut_off = self.stopped.cut_off(self.executions)
        return [one for one in cut_off if one.end is not None and one.end >= self.continued]


def fleet_checks(evidence: FleetEvidence) -> list[Check]:
    """The claims of the demo, each decided by what was measured."""
    orders = len(evidence.expected)
    right = sum(evidence.results.get(run) == result for run, result in evidence.expected.items())
    recorded = Counter(recorded_steps(evidence.histories))
    once = sum(count == 1 for count in recorded.values())
    charged = sum(recorded[run, "charge"] == 1 for run in evidence.expected)
    gaps = [run for run, entries in evidence.histories.items() if not _is_dense(entries)]
    again = _ran_again(evidence)
    strange = _strange(evidence)
    late = _written_late(evidence)
    had = sorted({evidence.numbers[one.owner] for one in evidence.holdings if one.owner is not None})
    wanted = orders * len(STEPS)
    drained = sorted(evidence.drained_with.values())
    return [
        Check("every order has the right result", right == orders, f"{right} of {orders}"),
        Check("every order was charged exactly once, as recorded", charged == orders, f"{charged} of {orders}"),
        Check("every step is recorded, once", len(recorded) == wanted == once, f"{once} of {wanted}"),
        Check("journals have no gaps", not gaps, f"{len(evidence.histories)} runs"),
        Check("nothing recorded before a signal ran again", not again, f"{len(again)} of {_recorded_before(evidence)}"),
        Check("only steps that were cut off ran a second time", not strange, f"{len(strange)} others"),
        *[_taken_over(evidence, fall) for fall in evidence.falls],
        Check("the stopped worker committed nothing more", not late, f"{len(late)} of {_cut_off(evidence)} outcomes"),
        Check("it goes on under another id", bool(evidence.new_ids), f"{_anew(evidence):.1f} s later"),
        Check("all three workers had a share", len(had) == 3, f"workers {', '.join(map(str, had))}"),
        Check("the others drained on SIGTERM", drained == [0, 0], f"exit codes {', '.join(map(str, drained))}"),
    ]  # fmt: skip


def _anew(evidence: FleetEvidence) -> float:
    return evidence.back - evidence.continued


def _is_dense(entries: Sequence[HistoryEntry]) -> bool:
    return [entry.seq for entry in entries] == [*range(1, len(entries) + 1)]


def _ran_again(evidence: FleetEvidence) -> list[Execution]:
    """Counted from `seen` on: what a worker began before its end may have been recorded in time, too."""
    return [
        one
        for fall in evidence.falls
        for one in evidence.executions
        if one.begin > fall.seen and one.place in fall.recorded
    ]


def _recorded_before(evidence: FleetEvidence) -> int:
    return sum(len(fall.recorded) for fall in evidence.falls)


def _strange(evidence: FleetEvidence) -> list[Place]:
    """Steps that ran more often than what happened to their workers explains, or that nobody ran."""
    times = Counter(one.place for one in evidence.executions)
    allowed = Counter(one.place for fall in evidence.falls for one in fall.cut_off(evidence.executions))
    recorded = set(recorded_steps(evidence.histories))
    return [place for place in recorded | set(times) if not 1 <= times[place] <= 1 + allowed[place]]


def _taken_over(evidence: FleetEvidence, fall: Fall) -> Check:
    """All of its runs were let go of in time, and those with work to do were another's."""
    freed, taken = fall.freed(evidence.holdings), fall.taken(evidence.holdings)
    complete = set(freed) == fall.runs and fall.busy <= set(taken) and bool(fall.cut_off(evidence.executions))
    latest = max([*freed.values(), *(taken[run][0] for run in fall.busy if run in taken)], default=0.0)
    name = {
        "SIGKILL": "all runs of the killed worker went on elsewhere",
        "SIGSTOP": "and those of the stopped one",
    }[fall.signal]
    return Check(
        name, complete and latest <= TAKE_OVER_SECONDS_MAX, f"{len(freed)} of {len(fall.runs)}, {latest:.1f} s"
    )


def _cut_off(evidence: FleetEvidence) -> int:
    return len(evidence.stopped.cut_off(evidence.executions))


def _written_late(evidence: FleetEvidence) -> list[Place]:
    """What the stopped worker may have written after it was continued: outcomes of steps that it was in, which were not
    recorded by another one before that; and records that are not what they were then."""
    before = set(recorded_steps(evidence.before))
    missing = [one.place for one in evidence.stopped.cut_off(evidence.executions) if one.place not in before]
    changed = [
        (run, "") for run, entries in evidence.before.items() if evidence.histories[run][: len(entries)] != entries
    ]
    return missing + changed
