"""`perdure doctor`: is the store well, and does somebody work on what is in it? Each check with what to do.

A store says how it is itself (`store/health.py`); what its figures about runs, workers and dead letters mean is said
here, for all stores alike. Writes nothing, and needs no open store: one that cannot be opened is what it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure import limits
from perdure.store.health import (
    Contents,
    DueRun,
    Examinable,
    Examined,
    Finding,
    Level,
    Parked,
    WorkerHealth,
    attention,
    count_text,
    duration_text,
    fine,
    problem,
    worst,
)
from perdure.store.model import Status
from perdure.store.protocol import Store

#: The worker died with such a run again and again: `Reason` calls it parked-poisoned.
_POISONED = "poisoned"
_STATES: Final = ("alive", "draining", "silent", "dead")


class Diagnosis(msgspec.Struct, frozen=True):
    """What `doctor` found. `level` is that of the worst finding."""

    #: As people may see it: a URL without its password, or a path.
    store: str
    level: Level
    findings: Sequence[Finding]


async def doctor(store: Store) -> Diagnosis:
    """Examine a store. Raises nothing that is wrong with it: that is a finding."""
    if isinstance(store, Examinable):
        examined = await store.examine()
    else:
        examined = Examined(type(store).__name__, (fine("store", "it does not say how it is (`examine`)"),))
    findings = [*examined.findings, *_of_contents(examined.contents)]
    return Diagnosis(examined.store, worst(one.level for one in findings), findings)


def _of_contents(contents: Contents | None) -> list[Finding]:
    if contents is None:
        return []
    found: list[Finding] = []
    if contents.workers is not None:
        found.append(_workers(contents.workers))
    if contents.counts is not None:
        found.append(_runs(contents.counts))
    if contents.parked is not None:
        found.append(_parked(contents.parked))
    if contents.due is not None:
        found.append(_due(contents, contents.due))
    if contents.dead_letters is not None:
        found.append(_dead_letters(contents, contents.dead_letters))
    return found


# -- workers ---------------------------------------------------------------------------------------------


def _workers(workers: Sequence[WorkerHealth]) -> Finding:
    states = Counter(one.state for one in workers)
    figures: dict[str, Any] = {state: states[state] for state in _STATES}
    if not workers:
        return fine("workers", "none is registered", **figures)
    text = ", ".join(f"{states[state]} {state}" for state in _STATES if states[state])
    owned = sum(one.runs or 0 for one in workers if one.state == "alive")
    if owned:
        text += f"; the living have {count_text(owned, 'run')}"
    gone = [one for one in workers if one.state in ("silent", "dead")]
    if not gone:
        return fine("workers", text, **figures)
    text += f". {'; '.join(_worker_text(one) for one in gone[:5])}"
    if states["dead"]:
        advice = "Its runs are taken over at the next sweep of another worker."
        if not states["alive"]:
            advice = "Nobody is there to take over its runs: start a worker (`perdure worker --app ...`)."
    else:
        advice = "Look at it: it is busy, stopped, or cannot reach the store. When its lease is over others take over."
    return attention("workers", text, advice, **figures)


def _worker_text(one: WorkerHealth) -> str:
    silent = f", silent for {duration_text(one.silent_seconds)}" if one.silent_seconds is not None else ""
    runs = f", with {count_text(one.runs, 'run')}" if one.runs is not None else ""
    return f"{one.state}: {one.name!r} (pid {one.pid} on {one.host}){silent}{runs}"


# -- runs ------------------------------------------------------------------------------------------------


def _runs(counts: Mapping[Status, int]) -> Finding:
    some = {status: counts[status] for status in Status if counts.get(status)}
    text = ", ".join(f"{count:,} {status}" for status, count in some.items()) or "none yet"
    figures: dict[str, Any] = {status.value: count for status, count in some.items()}
    return fine("runs", text, **figures)


def _parked(parked: Sequence[Parked]) -> Finding:
    if not parked:
        return fine("parked", "none")
    total = sum(one.count for one in parked)
    kinds = ", ".join(f"{one.count:,} {one.kind or 'without a reason'} (such as {one.example!r})" for one in parked)
    poisoned = next((one for one in parked if one.kind.startswith(_POISONED)), None)
    figures: dict[str, Any] = {"parked": total, "poisoned": poisoned.count if poisoned is not None else 0}
    text = f"{count_text(total, 'run')} parked: {kinds}"
    if poisoned is None:
        advice = f"`perdure why {parked[0].example}` says what to resolve; then `perdure resume`."
        return attention("parked", text, advice, **figures)
    advice = (
        f"Poisoned ones killed their workers again and again: look at the next step (`perdure why {poisoned.example}`)."
    )
    return problem("parked", text, advice, **figures)


def _due(contents: Contents, due: Sequence[DueRun]) -> Finding:
    """The run that waits for a worker the longest, and why none takes it."""
    if not due:
        return fine("due", "no run waits for a worker", count=0)
    first = min(due, key=lambda one: one.since)
    waited = max(0.0, (contents.now - first.since) / 1_000_000)
    alive = [one for one in contents.workers or () if one.state == "alive"]
    count = contents.due_count or len(due)
    many = (
        f"at least {count:,} runs are"
        if count >= limits.CLAIM_COUNTED_MAX
        else f"{count_text(count, 'run')} {'is' if count == 1 else 'are'}"
    )
    text = f"{many} due; for the longest time, {duration_text(waited)}, {first.id!r} ({first.workflow} {first.version})"
    figures: dict[str, Any] = {"count": count, "run": first.id, "seconds": waited, "workers": len(alive)}
    if contents.workers is not None and not alive:
        advice = "Start one: `perdure worker --app ...`."
        return problem("due", f"{text}: no worker is alive", advice, **figures)
    knowing = [one for one in alive if one.runs_definition(first.workflow, first.version)]
    if contents.workers is not None and not knowing:
        text += f": {count_text(len(alive), 'worker')} alive, and none runs this workflow and version"
        advice = "Start one that does (--app), or register that version again."
        return attention("due", text, advice, **figures)
    if waited < limits.DOCTOR_DUE_SECONDS:
        return fine("due", text, **figures)
    if first.recoveries > 1:
        text += f": its workers died {first.recoveries} times in a row, so it is tried after the others"
        return attention("due", text, f"Look at its next step: `perdure why {first.id}`.", **figures)
    text += f": {count_text(len(knowing), 'living worker')} could run it, and none takes it"
    advice = "They are full (residents_max) or busy: look at their log, or start more."
    return attention("due", text, advice, **figures)


# -- events ----------------------------------------------------------------------------------------------


def _dead_letters(contents: Contents, count: int) -> Finding:
    if not count:
        return fine("dead-letters", "none", count=0)
    many = f"more than {limits.DOCTOR_ROWS_COUNTED:,}" if count >= limits.DOCTOR_ROWS_COUNTED else f"{count:,}"
    since = contents.dead_letter_since
    ago = f", the oldest of {duration_text((contents.now - since) / 1_000_000)} ago" if since is not None else ""
    advice = "`perdure dead-letters list`; then replay or remove them."
    return attention("dead-letters", f"{many} events did not reach their run{ago}", advice, count=count)
