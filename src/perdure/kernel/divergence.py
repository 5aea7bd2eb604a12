"""The report for code that no longer matches its journal: both sides, with their source lines, and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from perdure.errors import Diverged, describe_line
from perdure.kernel.journal import Record

if TYPE_CHECKING:
    from perdure.kernel.frontier import Frontier
    from perdure.kernel.operations.base import Operation
from perdure.kernel.values.faults import raised_at


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
    kind = record.body.about or "the end"
    here = accepted or _nearest(kind, location, asked)
    return Diverged(
        _report(
            run_id,
            f"at record {record.seq}",
            (f"{kind} {location!r}", _recorded(record)),
            _code_side(here, "nothing more at this point (it ended, or waits for what was recorded later)"),
        )
    )


def ended_early(run_id: str, left: Sequence[Record], raised: BaseException | None = None) -> Diverged:
    """The code came to its end, perhaps by an exception, although records are left over."""
    record = left[0]
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    kind = record.body.about or record.body.kind
    error = Diverged(
        _report(
            run_id,
            f"at record {record.seq}",
            (f"{kind} {record.location!r}{more}", _recorded(record)),
            _end_side(raised),
        )
    )
    error.__cause__ = raised
    return error


def frontier_mismatch(
    run_id: str,
    frontier: Frontier,
    pending: Sequence[Operation],
    *,
    ended: bool = False,
    raised: BaseException | None = None,
) -> Diverged:
    """Every record was matched, but the code then waits for something else than it did when they were written."""
    waiting = {(w.kind, w.location, w.detail if w.kind == "receive" else ""): w for w in frontier.operations}
    now = {(o.kind, o.location, o.detail() if o.kind == "receive" else ""): o for o in pending}
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
    code_side = _end_side(raised) if ended and here is None else _code_side(here, "nothing in its place")
    error = Diverged(_report(run_id, f"after record {frontier.seq}", journal_side, code_side))
    error.__cause__ = raised
    return error


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


def _end_side(raised: BaseException | None) -> tuple[str, str, str]:
    """The code has ended. If by an exception, that is what its author has to see: without it the report would send
    them looking for a changed order of calls (tests/change/table.py)."""
    if raised is None:
        return "the workflow function has ended", "", "..."
    place = raised_at(raised)
    return f"the workflow function raised {describe_line(raised)}", f"({place})" if place else "", "..."


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


#: What is so when a worker meets the divergence, and what is when it is only foreseen.
_PARKED: Final = "The run is parked and nothing was lost."
_FORESEEN: Final = "The run would be parked, with nothing lost."


def _way_out(run_id: str, patch: str = "...") -> str:
    return (
        f"  {_PARKED} Restore the old order, or guard the change with\n"
        f'  `if patched("{patch}"):`, then {_resume(run_id)}.'
    )


def _resume(run_id: str) -> str:
    return f"`perdure resume {run_id}`"


def foreseen(report: str, run_id: str) -> str:
    """The same report about a run that is not parked: `check` looks before the code is deployed."""
    return report.replace(_PARKED, _FORESEEN).replace(f"then {_resume(run_id)}", "then deploy")


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%MZ")
