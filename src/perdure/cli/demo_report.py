"""What `perdure demo` prints at its end: the timeline, what the kill found, and the checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import fill
from typing import Any

from rich.console import Console
from rich.text import Text

from perdure.cli import output
from perdure.cli.demo_evidence import STEPS, Check, Evidence, count_states, recorded_steps
from perdure.cli.demo_timeline import timeline


def report(evidence: Evidence, outcome: Sequence[Check], elapsed: float) -> None:
    console = output.console(80)
    console.print()
    for line in timeline(evidence):
        console.print(line, soft_wrap=True)
    heading(console, "At the kill")
    show_lines(console, _at_the_kill(evidence))
    heading(console, "Steps")
    console.print(_step_table(evidence))
    show_checks(console, outcome, "Nothing was lost and nothing recorded was repeated", elapsed)


def heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def show_lines(console: Console, lines: Sequence[str]) -> None:
    for text in lines:
        console.print(Text(fill(text, 78, initial_indent="  ", subsequent_indent="    ")))


def show_checks(console: Console, outcome: Sequence[Check], good: str, elapsed: float) -> None:
    """Each with what it found, and the verdict: `good`, or how many failed."""
    heading(console, "Checks")
    for check in outcome:
        mark = Text("  ok    ", style="green") if check.ok else Text("  FAILED", style="bold red")
        console.print(Text.assemble(mark, f"{check.name}  ", (f"({check.detail})", "dim")))
    console.print()
    failed = sum(not check.ok for check in outcome)
    console.print(
        Text(
            f"{f'{failed} checks failed' if failed else good}. {elapsed:.1f} s.",
            style="bold red" if failed else "bold green",
        )
    )


def _at_the_kill(evidence: Evidence) -> list[str]:
    states = count_states(evidence.at_kill.states.values())
    cut = sorted(evidence.interrupted)
    unrecorded = sum(one.end is not None for one in cut)
    shown = ", ".join(f"{location} of {run.partition('/')[0]}" for run, location in (one.place for one in cut))
    lost = f" ({unrecorded} had ended, but its outcome was not recorded yet)" if unrecorded else ""
    return [
        f"Orders: {', '.join(f'{count} {state}' for state, count in states.items())}.",
        f"In flight: {len(cut)} steps{lost}: {shown}.",
        f"Approved while no worker lived, and kept: {', '.join(evidence.sent_meanwhile)}.",
        _takeover(evidence),
    ]


def _takeover(evidence: Evidence) -> str:
    began, ready, taken = (
        f"{at - evidence.killed:.2f} s" for at in (evidence.second_began, evidence.second_ready, evidence.taken_over)
    )
    return (
        f"After the kill: the next worker process was started at {began}, ready at {ready}, and had every "
        f"run with work to do at {taken} (those that only wait need nobody)."
    )


def _step_table(evidence: Evidence) -> Any:
    recorded = Counter(location for _, location in recorded_steps(evidence.histories))
    before = Counter(location for _, location in evidence.at_kill.recorded)
    ran = Counter(one.place[1] for one in evidence.executions)
    cut_off = {one.place for one in evidence.interrupted}
    second = [one for one in evidence.executions if one.pid == evidence.pids[1]]
    again = Counter(one.place[1] for one in second if one.place in cut_off)
    table = output.table("step", "recorded", "before kill", "bodies run", "interrupted, ran again")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in STEPS:
        table.add_row(name, *(str(counts[name]) for counts in (recorded, before, ran, again)))
    return table


def report_json(evidence: Evidence, outcome: Sequence[Check], elapsed: float) -> None:
    killed = evidence.killed
    output.print_json(
        {
            "event": "report",
            "ok": all(check.ok for check in outcome),
            "elapsed": elapsed,
            "checks": [check._asdict() for check in outcome],
            "at_kill": {
                "orders": count_states(evidence.at_kill.states.values()),
                "recorded_steps": len(evidence.at_kill.recorded),
                "in_flight": [list(one.place) for one in evidence.interrupted],
            },
            "second_worker": {
                "began_seconds": evidence.second_began - killed,
                "ready_seconds": evidence.second_ready - killed,
                "taken_over_seconds": evidence.taken_over - killed,
            },
            "executions": [one._asdict() for one in evidence.executions],
            "results": evidence.results,
        }
    )
