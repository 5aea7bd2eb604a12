"""`perdure history`: the journal of a run, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec
from rich.text import Text

from perdure.admin.views import HistoryEntry, RunView
from perdure.cli import output
from perdure.cli.command import durable, json_option, run_id_argument, store_option
from perdure.cli.errors import error_line
from perdure.cli.session import look
from perdure.cli.text import clock, identity, plain, shortened, value_text
from perdure.errors import BadArgument

#: Fields that say where, when and how, not what; the columns or `--full` show them.
_TECHNICAL = ("site", "digest", "seed", "semantics", "sent_at", "event_id", "next_at", "grace_until", "after", "now")

_STYLES = {
    "step_retry": "yellow",
    "step_failed": "red",
    "failed": "bold red",
    "completed": "green",
    "cancelled": "red",
}


@click.command()
@run_id_argument
@store_option
@click.option(
    "--generation",
    type=click.IntRange(1),
    help="Of a run that went on by continue_as.  [default: the current]",
)
@click.option("--full", is_flag=True, help="Whole values instead of their beginning.")
@json_option
@durable
async def history(run_id: str, store: str, generation: int | None, full: bool, as_json: bool) -> None:
    """The journal of a run, record by record."""
    async with look(store) as opened:
        view = await opened.status(run_id)
        if generation is not None and generation > view.generation:
            raise BadArgument(f"run {run_id!r} is in generation {view.generation}; there is no {generation} yet.")
        entries = await opened.admin.history(run_id, generation=generation)
    number = generation or view.generation
    if as_json:
        records = [{k: v for k, v in msgspec.structs.asdict(entry).items() if k != "record"} for entry in entries]
        output.print_json({"id": run_id, "generation": number, "records": records})
    elif not entries:
        output.print_line(f"No records are left of generation {number}.")
    else:
        _print(view, number, entries, full)


def _print(view: RunView, generation: int, entries: Sequence[HistoryEntry], full: bool) -> None:
    begin = entries[0].at
    table = output.table("seq", "time", "record", "location", "detail")
    table.columns[0].justify = table.columns[1].justify = "right"
    table.columns[0].no_wrap = table.columns[1].no_wrap = table.columns[2].no_wrap = True
    for entry in entries:
        table.add_row(
            Text(str(entry.seq)),
            Text(f"+{(entry.at - begin).total_seconds():.3f} s"),
            Text(plain(entry.kind), style=_STYLES.get(entry.kind, "")),
            Text(identity(entry.location)),
            Text(value_text(entry.data, indent=2) if full else detail(entry)),
        )
    console = output.console()
    heading = f"{identity(view.id)}, generation {generation}, began {clock(begin)}"
    console.print(Text.assemble((heading, "bold"), "  ", output.status_text(view.status)))
    console.print(table)


def detail(entry: HistoryEntry) -> str:
    """What matters about a record, bounded: arguments and value, or the error."""
    data = entry.data
    parts: list[str] = []
    if "args" in data:
        parts.append(f"({shortened(value_text(data['args']), 50)})")
    if "value" in data:
        parts.append(f"{'-> ' if parts else ''}{shortened(value_text(data['value']), 60)}")
    if isinstance(data.get("error"), dict):
        parts.append(shortened(plain(error_line(data["error"]))))
    skipped = {*_TECHNICAL, "args", "value", "error", "attempt"}
    parts += [_field(name, value) for name, value in data.items() if name not in skipped]
    if data.get("attempt", 1) > 1 or entry.kind in ("step_retry", "step_failed"):
        parts.append(f"attempt {data.get('attempt', 1)}")
    if data.get("site"):
        parts.append(f"[{plain(str(data['site']))}]")
    return " ".join(parts)


def _field(name: str, value: Any) -> str:
    shown = identity(value) if isinstance(value, str) else value_text(value)
    return f"{name} {shortened(shown, 60)}"
