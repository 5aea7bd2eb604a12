"""What `perdure demo --fleet` prints at its end: who had which run when, what was taken over, and the checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from perdure.cli import output
from perdure.cli.demo_evidence import STEPS, Check, count_states, recorded_steps
from perdure.cli.demo_fleet_evidence import TAKE_OVER_SECONDS_MAX, TERMS, Fall, FleetEvidence
from perdure.cli.demo_owners import LOOK_SECONDS
from perdure.cli.demo_report import heading, show_checks, show_lines
from perdure.cli.demo_timeline import LABEL_COLUMNS, Axis, Span, drawn
from perdure.engine.settings import Settings

DEFAULT = Settings()

STYLES = {
    "1": "green", "2": "cyan", "3": "magenta", "=": "green", "x": "bold red", "s": "bold yellow", "!": "bold red",
    ".": "dim",
}  # fmt: skip
LEGEND = (
    "1 2 3 the worker that had the order   . nobody's: it waits, or is due",
    "x its worker was dead   s its worker stood still   ! SIGKILL",
)


def report(evidence: FleetEvidence, outcome: Sequence[Check], elapsed: float) -> None:
    console = output.console(80)
    console.print()
    for line in timeline(evidence):
        console.print(line, soft_wrap=True)
    heading(console, "Taken over")
    show_lines(console, [_terms()])
    console.print(_falls_table(evidence))
    show_lines(console, _what_happened(evidence))
    heading(console, "Steps")
    console.print(_step_table(evidence))
    show_checks(
        console, outcome, "Nothing was lost, nothing recorded was repeated, and nobody had to do anything", elapsed
    )


# -- the timeline ----------------------------------------------------------------------------------------------


def timeline(evidence: FleetEvidence) -> list[Text]:
    """The whole picture, line by line, at most 80 columns wide: each worker, then each order."""
    axis = Axis(min(one.begin for one in evidence.holdings), evidence.finished)
    lines = [drawn("", axis.ruler(), STYLES)]
    lines += [drawn(f"worker {n}", axis.draw(list(_life(evidence, n))), STYLES) for n in sorted(evidence.ready)]
    lines += [drawn(run, axis.draw(list(_owners(evidence, run))), STYLES) for run in evidence.expected]
    return lines + [Text(f"{' ' * LABEL_COLUMNS}{text}", style="dim") for text in LEGEND]


def _life(evidence: FleetEvidence, number: int) -> Iterator[Span]:
    killed, stopped = evidence.falls
    end = killed.at if number == killed.number else evidence.finished
    yield Span(evidence.ready[number], end, "=")
    if number == killed.number:
        yield Span(killed.at, killed.at, "!")
    if number == stopped.number:
        yield Span(stopped.at, evidence.continued, "s")


def _owners(evidence: FleetEvidence, run: str) -> Iterator[Span]:
    for one in evidence.holdings:
        if one.run != run:
            continue
        number = evidence.numbers.get(one.owner or "")
        yield Span(one.begin, one.end, "." if number is None else str(number))
        for fall in evidence.falls:
            if one.owner in fall.ids and one.end > fall.at:
                yield Span(max(one.begin, fall.at), one.end, "x" if fall.signal == "SIGKILL" else "s")


# -- the rest --------------------------------------------------------------------------------------------------


def _terms() -> str:
    return (
        f"Leases are {TERMS.lease:g} s here and heartbeats {TERMS.terms.heartbeat:g} s, so that the demo is short. "
        f"By default they are {DEFAULT.lease:g} s and {DEFAULT.terms.heartbeat:g} s. A worker that is gone is found by "
        "its closed connection (not behind a pooler), one that stands still by the end of its lease. Runs include "
        f"children. Owners were read every {LOOK_SECONDS:g} s."
    )


def _falls_table(evidence: FleetEvidence) -> Table:
    made = output.table("", *(f"worker {fall.number}, {fall.signal}" for fall in evidence.falls))
    for column in made.columns[1:]:
        column.justify = "right"
    for label, *cells in zip(
        ("runs it had", "steps cut off", "first run elsewhere after", "its last run let go of after", "taken by"),
        *(_cells(evidence, fall) for fall in evidence.falls),
        strict=True,
    ):
        made.add_row(label, *cells)
    return made


def _cells(evidence: FleetEvidence, fall: Fall) -> list[str]:
    taken = fall.taken(evidence.holdings)
    shares = Counter(evidence.numbers[owner] for _, owner in taken.values() if owner is not None)
    return [
        str(len(fall.runs)),
        str(len(fall.cut_off(evidence.executions))),
        _seconds(at for at, _ in taken.values()),
        _seconds([max(fall.freed(evidence.holdings).values(), default=0.0)]),
        ", ".join(f"worker {number}: {count}" for number, count in sorted(shares.items())),
    ]


def _seconds(values: Any) -> str:
    return f"{min(values, default=0.0):.2f} s"


def _what_happened(evidence: FleetEvidence) -> list[str]:
    killed, stopped = evidence.falls
    stood, anew = evidence.continued - stopped.at, evidence.back - evidence.continued
    lines = [
        f"Worker {killed.number} at SIGKILL: {_states(killed)}.",
        f"Worker {stopped.number} at SIGSTOP: {_states(stopped)}.",
        f"It stood still for {stood:.1f} s, and was back under another id {anew:.2f} s later. {_late(evidence)}",
        f"What it said: {evidence.said}",
    ]
    if evidence.sent_to_the_dead is not None:
        lines.append(f"Approved while its worker was dead, and kept: {evidence.sent_to_the_dead}.")
    return lines


def _states(fall: Fall) -> str:
    return ", ".join(f"{count} {state}" for state, count in count_states(fall.states.values()).items())


def _late(evidence: FleetEvidence) -> str:
    late, cut = len(evidence.late_ends()), len(evidence.stopped.cut_off(evidence.executions))
    return f"Of the {cut} steps that it had been in, {late} came to their end in it by then; none of them counted."


def _step_table(evidence: FleetEvidence) -> Table:
    recorded = Counter(location for _, location in recorded_steps(evidence.histories))
    ran = Counter(one.place[1] for one in evidence.executions)
    cut = [Counter(one.place[1] for one in fall.cut_off(evidence.executions)) for fall in evidence.falls]
    made = output.table("step", "recorded", "bodies run", "cut off by SIGKILL", "by SIGSTOP")
    for column in made.columns[1:]:
        column.justify = "right"
    for name in STEPS:
        made.add_row(name, *(str(counts[name]) for counts in (recorded, ran, *cut)))
    return made


def report_json(evidence: FleetEvidence, outcome: Sequence[Check], elapsed: float) -> None:
    output.print_json(
        {
            "event": "report",
            "ok": all(check.ok for check in outcome),
            "elapsed": elapsed,
            "lease_seconds": TERMS.lease,
            "heartbeat_seconds": TERMS.terms.heartbeat,
            "take_over_seconds_max": TAKE_OVER_SECONDS_MAX,
            "checks": [check._asdict() for check in outcome],
            "killed": _fall_json(evidence, evidence.killed),
            "stopped": {
                **_fall_json(evidence, evidence.stopped),
                "stood_still_seconds": evidence.continued - evidence.stopped.at,
                "late_ends": [list(one.place) for one in evidence.late_ends()],
                "new_id_after_seconds": evidence.back - evidence.continued,
            },
            "holdings": [
                {"run": one.run, "worker": evidence.numbers.get(one.owner or ""), "begin": one.begin, "end": one.end}
                for one in evidence.holdings
            ],
            "executions": [one._asdict() for one in evidence.executions],
            "results": evidence.results,
        }
    )


def _fall_json(evidence: FleetEvidence, fall: Fall) -> dict[str, Any]:
    return {
        "worker": fall.number,
        "signal": fall.signal,
        "at": fall.at,
        "orders": count_states(fall.states.values()),
        "runs": sorted(fall.runs),
        "cut_off": [list(one.place) for one in fall.cut_off(evidence.executions)],
        "freed_seconds": fall.freed(evidence.holdings),
        "taken_seconds": {run: at for run, (at, _) in fall.taken(evidence.holdings).items()},
    }
