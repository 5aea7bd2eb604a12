"""`perdure demo`: orders, a kill -9 in the middle, and nothing lost. Every figure printed is measured.

With `--fleet` three workers on PostgreSQL, of which one is killed and one stopped.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import click
from rich.text import Text

from perdure.cli import demo_fleet, demo_fleet_report, demo_report, output
from perdure.cli.command import durable, json_option
from perdure.cli.demo_evidence import Check, checks
from perdure.cli.demo_fleet_evidence import fleet_checks
from perdure.cli.demo_story import perform
from perdure.cli.exits import ExitCode, ended
from perdure.cli.text import value_text
from perdure.errors import StoreError, describe

NO_SERVER = (
    "a fleet needs a PostgreSQL server: give one with --store postgresql://user@host/database. The demo makes a schema "
    "of its own there, and drops it. In a checkout of perdure, `make demo-fleet` starts a server by itself."
)


class Play(NamedTuple):
    """One of the two demos."""

    title: str
    #: What really happens, to the evidence; the claims; what is printed.
    perform: Callable[[], Coroutine[Any, Any, Any]]
    checks: Callable[[Any], list[Check]]
    report: Callable[[Any, Sequence[Check], float], None]
    #: Remove what it has made; how to look at it if it is kept.
    clean_up: Callable[[], Coroutine[Any, Any, None]]
    look: str


@click.command()
@click.option("--orders", type=click.IntRange(8, 60), help="How many order workflows.  [default: 12, with --fleet 24]")
@click.option("--fleet", is_flag=True, help="Three workers on PostgreSQL: one is killed, one stopped.")
@click.option(
    "--store", metavar="URL", help="With --fleet: the PostgreSQL server. The demo makes its own schema there."
)
@click.option("--keep", is_flag=True, help="Keep the database, to look at with `perdure ls`.")
@json_option
@durable
async def demo(orders: int | None, fleet: bool, store: str | None, keep: bool, as_json: bool) -> None:
    """Orders, a kill -9 in the middle, and nothing lost.

    Orders run in a worker process of their own, on a SQLite file with full durability. The worker is killed with
    SIGKILL in the middle of everything; another one takes over. Then what the steps wrote down themselves is
    compared with the journals. The exit code is 1 if any check fails.

    With --fleet three workers share a PostgreSQL server. One is killed with SIGKILL; one is stopped for longer than
    its lease, and continued after another one has finished its steps.
    """
    if store is not None and not fleet:
        raise click.UsageError("--store is for --fleet; without it the demo makes a SQLite file of its own.")
    if fleet and (store is None or not store.lower().startswith(("postgresql:", "postgres:"))):
        raise click.UsageError(NO_SERVER)
    url = demo_fleet.with_own_schema(store) if store is not None else None
    directory = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    teller = Teller(as_json)
    play = _alone(directory, orders or 12, teller, as_json)
    if url is not None:
        play = _fleet(directory, url, orders or 24, teller, as_json)
    teller.begin(play.title, directory)
    passed = False
    try:
        evidence = await play.perform()
        outcome = play.checks(evidence)
        passed = all(check.ok for check in outcome)
        play.report(evidence, outcome, teller.elapsed())
    except (TimeoutError, RuntimeError, StoreError, ExceptionGroup) as error:
        output.complain(f"The demo did not come to its end: {describe(error)}. The workers' logs are kept.")
    finally:
        if passed and not keep:
            await play.clean_up()
            shutil.rmtree(directory, ignore_errors=True)
        elif not as_json:
            output.print_line(f"Kept: {directory} (try `{play.look}`)")
    if not passed:
        raise ended(ExitCode.ERROR)


def _alone(directory: Path, orders: int, teller: Teller, as_json: bool) -> Play:
    async def nothing() -> None:
        """The directory is all there is."""

    return Play(
        f"perdure demo: {orders} orders, one SQLite file, one kill -9",
        lambda: perform(directory, orders, teller.tell),
        checks,
        demo_report.report_json if as_json else demo_report.report,
        nothing,
        f"perdure ls --store {directory / 'orders.db'}",
    )


def _fleet(directory: Path, url: str, orders: int, teller: Teller, as_json: bool) -> Play:
    from perdure.store.postgres.migrate import drop
    from perdure.store.postgres.url import parse

    location = parse(url)
    return Play(
        f"perdure demo --fleet: {orders} orders, three workers, one PostgreSQL",
        lambda: demo_fleet.perform(directory, url, orders, teller.tell),
        fleet_checks,
        demo_fleet_report.report_json if as_json else demo_fleet_report.report,
        lambda: asyncio.to_thread(drop, location),
        f"perdure ls --store '{location.shown}'",
    )


class Teller:
    """Says what happens while it happens."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._began = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def begin(self, title: str, directory: Path) -> None:
        if self._as_json:
            output.print_json({"event": "begin", "title": title, "directory": str(directory)})
        else:
            output.console(80).print(Text(title, style="bold"))

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
