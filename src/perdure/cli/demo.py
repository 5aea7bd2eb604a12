"""`perdure demo`: a fleet of orders, a kill -9 in the middle, and nothing lost. Every figure printed is measured."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from perdure.cli import output
from perdure.cli.command import durable, json_option
from perdure.cli.demo_evidence import STEPS, Check, Evidence, checks, count_states, recorded_steps
from perdure.cli.demo_fleet import perform
from perdure.cli.demo_timeline import timeline
from perdure.cli.exits import ExitCode, ended
from perdure.cli.text import value_text
from perdure.errors import describe


@click.command()
@click.option("--orders", default=12, show_default=True, type=click.IntRange(8, 60), help="How many order workflows.")
@click.option("--keep", is_flag=True, help="Keep the directory with the database, to look at with `perdure ls`.")
@json_option
@durable
async def demo(orders: int, keep: bool, as_json: bool) -> None:
    """A fleet of orders, a kill -9 in the middle, and nothing lost.

    Orders run in a worker process of their own, on a SQLite file with full durability. The worker is killed with
    SIGKILL in the middle of everything; another one takes over. Then what the steps wrote down themselves is
    compared with the journals. The exit code is 1 if any check fails.
    """
    directory = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    teller = Teller(as_json)
    teller.begin(orders, directory)
    passed = False
    try:
        evidence = await perform(directory, orders, teller.tell)
        outcome = checks(evidence)
        passed = all(check.ok for check in outcome)
        (report_json if as_json else report)(evidence, outcome, teller.elapsed())
    except (TimeoutError, RuntimeError) as error:
        output.complain(f"The demo did not come to its end: {describe(error)}. The workers' logs are kept.")
    finally:
        if passed and not keep:
            shutil.rmtree(directory, ignore_errors=True)
        elif not as_json:
            output.print_line(f"Kept: {directory} (try `perdure ls --store {directory / 'orders.db'}`)")
    if not passed:
        raise ended(ExitCode.ERROR)


class Teller:
    """Says what happens while it happens."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._began = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def begin(self, orders: int, directory: Path) -> None:
        if self._as_json:
            output.print_json({"event": "begin", "orders": orders, "directory": str(directory)})
        else:
            output.console(80).print(Text(f"perdure demo: {orders} orders, one SQLite file, one kill -9", style="bold"))

    def tell(self, what: str, **facts: Any) -> None:
        if self._as_json:
            output.print_json({"event": what, "elapsed": self.elapsed(), **facts})
            return
        when, shown = f"{self.elapsed():5.1f} s  ", ", ".join(_fact(name, value) for name, value in facts.items())
        if len(when) + len(what) + 2 + len(shown) > 80:
            shown = "\n" + fill(shown, 80, initial_indent=" " * 11, subsequent_indent=" " * 11)
        else:
            shown = "  " + shown
        output.console(80).print(Text.assemble((when, "dim"), what, (shown, "dim")), soft_wrap=True)


def _fact(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {state}" for state, count in value.items())
    return f"{name.replace('_', ' ')} {value if isinstance(value, str) else value_text(value)}"


# -- the report ------------------------------------------------------------------------------------------------


def report(evidence: Evidence, outcome: Sequence[Check], elapsed: float) -> None:
    console = output.console(80)
    console.print()
    for line in timeline(evidence):
        console.print(line, soft_wrap=True)
    _heading(console, "At the kill")
    for text in _at_the_kill(evidence):
        console.print(Text(fill(text, 78, initial_indent="  ", subsequent_indent="    ")))
    _heading(console, "Steps")
    console.print(_step_table(evidence))
    _heading(console, "Checks")
    for check in outcome:
        mark = Text("  ok    ", style="green") if check.ok else Text("  FAILED", style="bold red")
        console.print(Text.assemble(mark, f"{check.name}  ", (f"({check.detail})", "dim")))
    console.print()
    failed = sum(not check.ok for check in outcome)
    verdict = f"{failed} checks failed" if failed else "Nothing was lost and nothing recorded was repeated"
    console.print(Text(f"{verdict}. {elapsed:.1f} s.", style="bold red" if failed else "bold green"))


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


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
