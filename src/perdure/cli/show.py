"""`perdure show`: everything about one run."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.text import Text

from perdure.admin.views import HistoryEntry, RunView
from perdure.cli import output
from perdure.cli.command import durable, json_option, run_id_argument, store_option
from perdure.cli.errors import error_text
from perdure.cli.ls import what
from perdure.cli.session import look
from perdure.cli.text import age, clock, duration, identity, json_text, lines, plain, value_text
from perdure.engine.engine import Engine
from perdure.errors import CorruptRecord
from perdure.store.model import RunRow


class Facts(msgspec.Struct):
    """One run and what belongs to it."""

    view: RunView
    worker: str | None
    inbox: dict[str, int]
    input: Any
    parent: str | None
    end: dict[str, Any] | None


@click.command()
@run_id_argument
@store_option
@json_option
@durable
async def show(run_id: str, store: str, as_json: bool) -> None:
    """Everything about one run: what it waits for, why it is parked, how it ended."""
    async with look(store) as opened:
        facts = await _facts(opened, run_id)
    if as_json:
        view: dict[str, Any] = msgspec.structs.asdict(facts.view)
        rest = {name: getattr(facts, name) for name in ("worker", "inbox", "input", "parent", "end")}
        output.print_json({**view, **rest})
    else:
        _print(facts)


async def _facts(opened: Engine, run_id: str) -> Facts:
    row = await opened.admin.row(run_id)
    view = await opened.status(run_id)
    started = await _entry(opened, row, 1)
    last = await _entry(opened, row, row.next_seq - 1) if row.status.terminal else None
    inbox: dict[str, int] = {}
    for item in await opened.admin.inbox(row):
        inbox[item.type] = inbox.get(item.type, 0) + 1
    owner = (await opened.admin.workers()).get(row.owner) if row.owner else None
    return Facts(
        view=view,
        worker=f"{owner.name} (pid {owner.pid} on {owner.host})" if owner else None,
        inbox=inbox,
        input=started.get("input"),
        parent=started.get("parent"),
        end=last,
    )


async def _entry(opened: Engine, row: RunRow, seq: int) -> dict[str, Any]:
    """The body of a record; a damaged one is shown as such, since that may be why somebody looks."""
    try:
        entry: HistoryEntry | None = await opened.admin.record(row, seq)
    except CorruptRecord as error:
        return {"damaged": str(error)}
    return {"kind": entry.kind, **entry.data} if entry is not None else {}


# -- for people --------------------------------------------------------------------------------------------


def _print(facts: Facts) -> None:
    view = facts.view
    console = output.console(100)
    console.print(Text.assemble((identity(view.id), "bold"), "  ", output.status_text(view.status)))
    for label, text in _lines(facts):
        console.print(Text.assemble((f"  {label:<10} ", "dim"), text), soft_wrap=True)
    _print_waits(console, view)
    _print_end(console, facts.end)


def _lines(facts: Facts) -> list[tuple[str, str]]:
    view = facts.view
    generation = f", generation {view.generation}" if view.generation > 1 else ""
    found = [
        ("workflow", f"{identity(view.workflow)} version {identity(view.version)}{generation}"),
        ("created", f"{clock(view.created_at)} ({age(view.created_at)} ago)"),
        ("changed", f"{clock(view.updated_at)} ({age(view.updated_at)} ago), {view.records} records"),
    ]
    if view.finished_at is not None:
        took = duration((view.finished_at - view.created_at).total_seconds())
        found.append(("finished", f"{clock(view.finished_at)} after {took}"))
    if facts.parent:
        found.append(("parent", identity(facts.parent)))
    if facts.worker:
        found.append(("worker", identity(facts.worker)))
    found.append(("input", value_text(facts.input)))
    if facts.inbox:
        unread = ", ".join(f"{count} x {identity(name)}" for name, count in facts.inbox.items())
        found.append(("inbox", f"{unread} unread"))
    if view.custom_status is not None:
        found.append(("status", value_text(view.custom_status)))
    if view.state:
        found.append(("state", value_text(view.state)))
    if view.cancel_requested and not view.status.terminal:
        found.append(("cancel", "requested"))
    if view.reason and not view.status.terminal:  # how it ended is shown in full
        found.append(("reason", lines(view.reason).replace("\n", "\n             ")))
    return found


def _print_waits(console: Any, view: RunView) -> None:
    if not view.waiting:
        return
    console.print(Text("  waiting for", style="dim"))
    for wait in view.waiting:
        place = f"  [{identity(wait.location)}{' at ' + plain(wait.site) if wait.site else ''}]"
        until = f", until {clock(wait.until)}" if wait.until else ""
        line = Text.assemble(f"    {what(wait)}", (f"{place} since {clock(wait.since)}{until}", "dim"))
        console.print(line, soft_wrap=True)
    if view.waiting_count > len(view.waiting):
        console.print(Text(f"    and {view.waiting_count - len(view.waiting)} more"))


def _print_end(console: Any, end: dict[str, Any] | None) -> None:
    if end is None:
        return
    match end.get("kind"):
        case "completed":
            console.print(Text.assemble(("  result     ", "dim"), value_text(end.get("value"))), soft_wrap=True)
        case "failed":
            console.print(Text("  error", style="dim"))
            console.print(Text(lines(error_text(end["error"])), style="red"), soft_wrap=True)
        case "cancelled":
            how = "terminated" if end.get("terminated") else "cancelled"
            reason = plain(str(end.get("reason") or "no reason given"))
            console.print(Text(f"  {how}: {reason}"), soft_wrap=True)
        case _:
            console.print(Text(f"  end        {json_text(end)}"), soft_wrap=True)
