"""The report for code that no longer matches its journal: both sides, with their source lines, and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from perdure.errors import Diverged
from perdure.kernel import journal
from perdure.kernel.journal import Record
from perdure.kernel.operation import Frontier, Operation, detail_of

KINDS: dict[type[journal.Body], str] = {
    journal.StepDone: "step",
    journal.StepRetry: "step",
    journal.StepFailed: "step",
    journal.TimerFired: "timer",
    journal.EventReceived: "receive",
    journal.EventsReceived: "receive",
    journal.ChildStarted: "child",
    journal.ChildDone: "child",
    journal.ChildFailed: "child",
    journal.ChildCancelled: "child",
    journal.Sent: "send",
    journal.Published: "publish",
    journal.Replied: "reply",
    journal.RunWatched: "wait_for_run",
    journal.RunEnded: "wait_for_run",
    journal.PatchChosen: "patch",
    journal.Recorded: "value",
    journal.LoopState: "loop",
}


def record_mismatch(
    run_id: str,
    record: Record | None,
    asked: Sequence[Operation],
    *,
    accepted: Operation | None = None,
    note: str = "",
) -> Diverged:
    """`record` has no counterpart among what the code waits for; `asked` is what no record explains."""
    if record is None:
        return Diverged(f"{note}\n{_way_out(run_id)}")
    location = record.location
    kind = KINDS.get(type(record.body), "the end")
    here = accepted or _nearest(kind, location, asked)
    return Diverged(
        _report(
            run_id,
            f"at record {record.seq}",
            (f"{kind} {location!r}", _recorded(record)),
            _code_side(here, "nothing more at this point (it ended, or waits for what was recorded later)"),
        )
    )


def ended_early(run_id: str, left: Sequence[Record]) -> Diverged:
    """The code came to its end although records are left over."""
    record = left[0]
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    kind = KINDS.get(type(record.body), record.body.kind)
    return Diverged(
        _report(
            run_id,
            f"at record {record.seq}",
            (f"{kind} {record.location!r}{more}", _recorded(record)),
            ("the workflow function has ended", "", "..."),
        )
    )


def frontier_mismatch(
    run_id: str, frontier: Frontier, pending: Sequence[Operation], *, ended: bool = False
) -> Diverged:
    """Every record was matched, but the code then waits for something else than it did when they were written."""
    waiting = {(w.kind, w.location, w.detail if w.kind == "receive" else ""): w for w in frontier.operations}
    now = {(o.kind, o.location, detail_of(o) if o.kind == "receive" else ""): o for o in pending}
    lost = [w for key, w in waiting.items() if key not in now]
    asked = [o for key, o in now.items() if key not in waiting]
    if lost:
        first = lost[0]
        site = f", {first.site}" if first.site else ""
        of = f" of {first.detail}" if first.kind == "receive" else ""
        journal_side = (f"{first.kind} {first.location!r}{of}", f"(waiting since {_moment(first.since)}{site})")
        here = _nearest(first.kind, first.location, asked)
    else:
        journal_side = (f"{frontier.count} pending operations", "")
        here = asked[0] if asked else None
    otherwise = "the workflow function has ended" if ended else "nothing in its place"
    return Diverged(_report(run_id, f"after record {frontier.seq}", journal_side, _code_side(here, otherwise)))


def _nearest(kind: str, location: str, asked: Sequence[Operation]) -> Operation | None:
    """The most likely counterpart of what was recorded: same kind first, then the most similar name."""
    if not asked:
        return None
    from difflib import SequenceMatcher  # only for the rare report, not for every start

    return max(asked, key=lambda o: (o.kind == kind, SequenceMatcher(None, o.location, location).ratio(), -o.number))


def _code_side(operation: Operation | None, otherwise: str) -> tuple[str, str, str]:
    """What the code asks for, where, and a name for the patch that would guard it."""
    if operation is None:
        return otherwise, "", "..."
    site = f"({operation.site})" if operation.site else ""
    return operation.describe(), site, operation.location.rpartition("/")[2].partition("#")[0]


def _recorded(record: Record) -> str:
    site = getattr(record.body, "site", "")
    return f"(recorded {_moment(record.at)}{', ' + site if site else ''})"


def _report(run_id: str, position: str, in_journal: tuple[str, str], in_code: tuple[str, str, str]) -> str:
    width = max(len(in_journal[0]), len(in_code[0]))
    return (
        f"run {run_id!r} no longer matches its journal {position}.\n"
        f"  journal: {in_journal[0]:<{width}}  {in_journal[1]}".rstrip()
        + f"\n  code:    {in_code[0]:<{width}}  {in_code[1]}".rstrip()
        + f"\n{_way_out(run_id, in_code[2])}"
    )


def _way_out(run_id: str, patch: str = "...") -> str:
    return (
        "  The run is parked and nothing was lost. Restore the old order, or guard the change with\n"
        f'  `if patched("{patch}"):`, then `perdure resume {run_id}`.'
    )


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%MZ")
