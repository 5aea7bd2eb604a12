"""What lives of a workflow left behind, how two of them are compared, and how a difference is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from perdure.store.memory import MemoryStore
from perdure.testing.impurity_watch import ImpurityWatch
from perdure.testing.memory import runs_of
from perdure.testing.text import value_text

R = TypeVar("R")

#: What may differ between two lives of a right workflow: times, ids drawn, places in the code, tries.
_CIRCUMSTANCES = frozenset(
    {"site", "seed", "event_id", "sent_at", "next_at", "attempt", "grace_until", "traceback", "digest", "semantics"}
)
_FINDINGS_SHOWN_MAX = 6


class Point:
    """Where a life ended: before or after which commit, and what the last record of that was."""

    def __init__(self, commit: int, before: bool) -> None:
        self.commit = commit
        self.before = before
        self.kind = ""
        self.location = ""

    def __str__(self) -> str:
        what = f"{self.kind} {self.location!r}" if self.location else self.kind
        return f"killed {'before' if self.before else 'after'} commit {self.commit} ({what})"


class Finding(NamedTuple):
    point: Point | None
    text: str


class Key(NamedTuple):
    """One attempt."""

    run_id: str
    generation: int
    location: str
    attempt: int


class Entry(NamedTuple):
    """One record, without its circumstances."""

    generation: int
    kind: str
    location: str
    attempt: int
    data: str


class JournalOf(NamedTuple):
    workflow: str
    entries: list[Entry]
    #: Whether finished iterations of loops were deleted: which ones depends on where the turns began and ended.
    pruned: bool = False


class Lived(NamedTuple):
    """What was left when a run had ended, after one life or two."""

    outcome: tuple[str, Any]
    journals: dict[str, JournalOf]
    effects: Counter[str]
    attempts: int
    #: Attempts that ran again although their outcome was stored.
    repeated: list[Key]
    died: bool
    commits: int
    records: int

    @property
    def value(self) -> Any:
        return self.outcome[1]


class CrashReport(NamedTuple, Generic[R]):
    """What `crash_everywhere` saw: the result (the message, if the workflow fails), crash points, lives, records."""

    result: R
    points: int
    lives: int
    records: int


def journals_of(memory: MemoryStore) -> dict[str, JournalOf]:
    return {
        run.loaded.run.id: JournalOf(
            run.loaded.run.workflow,
            [
                Entry(generation, row.kind, row.location, int(data.get("attempt", 1)), value_text(_essence(data)))
                for generation, rows in run.journals.items()
                for row in rows
                for data in [msgspec.json.decode(row.data)]
            ],
            run.loaded.run.pruned > 0,
        )
        for run in runs_of(memory)
    }


def _essence(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _essence(value) for name, value in data.items() if name not in _CIRCUMSTANCES}
    return [_essence(value) for value in data] if isinstance(data, list) else data


# -- comparing -----------------------------------------------------------------------------------------------


def compare(calm: Lived, other: Lived) -> Iterator[str]:
    """What differs, in words; nothing if the crash changed nothing."""
    if calm.outcome[0] != other.outcome[0]:
        yield f"it ended as {_outcome(other)}, and undisturbed as {_outcome(calm)}"
    elif calm.outcome != other.outcome:
        yield f"its result was {_shown(other.value)}, and undisturbed {_shown(calm.value)}"
    yield from _compare_journals(calm, other)
    yield from _compare_effects(calm, other)
    for run_id, _, location, attempt in other.repeated:
        yield f"attempt {attempt} of step {location!r} of run {run_id!r} ran again although its outcome was stored"


def _compare_journals(calm: Lived, other: Lived) -> Iterator[str]:
    if other.outcome[0] in ("RunParked", "stuck"):
        return  # it stopped half way: the outcome says why
    for run_id in sorted(calm.journals.keys() | other.journals.keys()):
        if run_id not in calm.journals or run_id not in other.journals:
            where = "only undisturbed" if run_id in calm.journals else "only after the crash"
            yield f"there is a run {run_id!r} {where}"
            continue
        before, after = _by_location(calm.journals[run_id]), _by_location(other.journals[run_id])
        for location in sorted(before.keys() | after.keys()):
            one, two = before.get(location, []), after.get(location, [])
            if (
                (not one or not two)
                and "~" in location
                and calm.journals[run_id].pruned | other.journals[run_id].pruned
            ):
                continue  # deleted with its iteration
            told = not location and calm.outcome != other.outcome  # the result is in the last record
            if one != two and not told:
                name = f"at {location!r}" if location else "at its ends"
                yield f"the journal of {run_id!r} {name} has {_records(two)}, and undisturbed {_records(one)}"


def _by_location(journal: JournalOf) -> dict[str, list[tuple[str, str]]]:
    """Branches may finish in another order after a crash; what each of them did may not differ. Retries may."""
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in journal.entries:
        if entry.kind not in ("step_retry", "loop_state"):  # a state says where in a turn it counts
            found.setdefault(entry.location, []).append((entry.kind, entry.data))
    return found


def _compare_effects(calm: Lived, other: Lived) -> Iterator[str]:
    again = other.attempts - calm.attempts
    for label in sorted(calm.effects.keys() | other.effects.keys()):
        expected, got = calm.effects[label], other.effects[label]
        if got < expected:
            yield f"the effect {label!r} was done {_times(got)}, and undisturbed {_times(expected)}: it got lost"
        elif got > expected and again <= 0:
            yield (
                f"the effect {label!r} was done {_times(got)}, and undisturbed {_times(expected)}, although no step "
                "ran again: it is done outside a step"
            )
        elif expected == 0 and got:
            yield f"the effect {label!r} was done {_times(got)}, and undisturbed never"


# -- in words --------------------------------------------------------------------------------------------------


def explain(
    name: str, findings: Sequence[Finding], points: Sequence[Point], changed: Sequence[str], watch: ImpurityWatch
) -> str:
    bad = {id(finding.point) for finding in findings if finding.point is not None}
    how = f": {len(bad)} of {len(points)}" if bad else f", although none of {len(points)}"
    lines = [f"workflow {name!r} does not survive every crash{how} crash points went wrong."]
    shown: set[str] = set()
    for point, texts in _grouped(findings):
        fresh = [text for text in texts if text not in shown]
        if not fresh or len(shown) >= _FINDINGS_SHOWN_MAX:
            continue
        lines.append(f"  {point if point is not None else 'without any crash'}:")
        lines += ["    - " + text.replace("\n", "\n      ") for text in fresh]
        shown.update(fresh)
    hidden = len({finding.text for finding in findings} - shown)
    if hidden:
        lines.append(f"  and {hidden} more differences")
    lines.append("  What is probably wrong:")
    lines += [f"    - {cause}" for cause in _causes(findings, changed, watch)]
    return "\n".join(lines) + "\n "


def _grouped(findings: Sequence[Finding]) -> list[tuple[Point | None, list[str]]]:
    groups: dict[int, tuple[Point | None, list[str]]] = {}
    for finding in findings:
        groups.setdefault(id(finding.point), (finding.point, []))[1].append(finding.text)
    return list(groups.values())


def _causes(findings: Sequence[Finding], changed: Sequence[str], watch: ImpurityWatch) -> Iterator[str]:
    texts = " ".join(finding.text for finding in findings)
    known = False
    for text in changed:
        known = True
        yield (
            f"{text} while it ran. Memory is lost in a crash, and workflow code runs again over its journal: keep it "
            "in `state`, return it from a step, or keep it where the step's work is kept."
        )
    for call, places in sorted(watch.reads.items()):
        known = True
        yield (
            f"workflow code called {call} at {', '.join(sorted(places))}, which gives another value on replay. Use "
            "`now()`, `random()` or `uuid4()` of perdure, or put the call into a step."
        )
    if "outside a step" in texts or "every replay repeats it" in texts:
        known = True
        yield "an effect belongs into a step: what a workflow does directly is done again by every replay."
        if printed := watch.effects.get("print()"):
            yield f"workflow code printed at {', '.join(sorted(printed))}: `perdure.log` is silent during replay."
    if "PYTHONHASHSEED" in texts:
        known = True
        yield "the order of a set differs from process to process. Iterate over `sorted(...)`, or use a list or a dict."
    if not known:
        yield (
            "a step that returns something else when it runs again keeps state of its own, or workflow code depends "
            "on something that is not in its journal: a clock, randomness, a file, the order of a set."
        )


def _outcome(lived: Lived) -> str:
    kind, value = lived.outcome
    return f"{kind} {_shown(value)}"


def _records(entries: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {data}" for kind, data in entries) or "nothing"


def _times(count: int) -> str:
    return "never" if count == 0 else "once" if count == 1 else f"{count} times"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) and "\n" in value else repr(value)
    return text if len(text) <= 600 else text[:599] + "…"
