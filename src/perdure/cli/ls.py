"""`perdure ls`: runs as a table, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from rich.text import Text

from perdure.admin.views import RunView, Wait
from perdure.cli import output
from perdure.cli.command import durable, json_option, limit_option, store_option
from perdure.cli.session import look
from perdure.cli.text import age, duration, identity, now, plain, shortened
from perdure.store.model import Status


@click.command()
@store_option
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([s.value for s in Status]),
    help="May be repeated.",
)
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--prefix", help="Only ids that begin with this.")
@limit_option
@click.option("--after", metavar="ID", help="Page on: the last id of the page before.")
@json_option
@durable
async def ls(
    store: str, statuses: tuple[str, ...], workflow: str | None, prefix: str | None, limit: int,
    after: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List runs, newest first."""
    async with look(store) as opened:
        runs = await opened.list(status=statuses or None, workflow=workflow, id_prefix=prefix, limit=limit, after=after)
        counts = await opened.admin.counts()
    if as_json:
        following = runs[-1].id if len(runs) == limit else None
        output.print_json({"runs": runs, "counts": counts, "next": following})
    else:
        _print(runs, counts, limit)


def _print(runs: Sequence[RunView], counts: Mapping[Status, int], limit: int) -> None:
    table = output.table("id", "workflow", "status", "records", "waiting for / reason", "age")
    table.columns[3].justify = "right"
    table.columns[5].justify = "right"
    table.columns[5].no_wrap = True
    for run in runs:
        table.add_row(
            Text(identity(run.id)),
            Text(identity(run.workflow)),
            output.status_text(run.status),
            Text(str(run.records)),
            Text(why(run)),
            Text(age(run.created_at)),
        )
    console = output.console()
    console.print(table)
    console.print(_caption(counts))
    if len(runs) == limit:
        console.print(Text(f"More: --after {identity(runs[-1].id)}", style="dim"))


def _caption(counts: Mapping[Status, int]) -> Text:
    if not counts:
        return Text("No runs yet.", style="dim")
    parts = [Text.assemble(str(number), " ", output.status_text(status)) for status, number in counts.items()]
    return Text.assemble(Text("All runs: ", style="dim"), Text(", ").join(parts))


def why(run: RunView) -> str:
    """Why a run is not moving, or what it failed with, in a few words."""
    if run.reason:
        return shortened(plain(run.reason.partition("\n")[0]))
    if run.status.terminal or not run.waiting:
        return ""
    more = f" (+{run.waiting_count - 1} more)" if run.waiting_count > 1 else ""
    # A timeout says less than what it limits.
    first = min(run.waiting, key=lambda wait: wait.kind == "timer")
    return shortened(what(first)) + more


def what(wait: Wait) -> str:
    """One thing a run waits for: `event 'Approved'`, `step charge`, `sleep for 29.9 d`."""
    location = identity(wait.location)
    match wait.kind:
        case "receive":
            return f"event {identity(wait.detail)}"
        case "timer":
            return f"{location}{_left(wait)}"
        case "child":
            return f"child {identity(wait.detail)}"
        case _:
            detail = f" ({plain(wait.detail)})" if wait.detail else ""
            return f"{plain(wait.kind)} {location}{detail}{_left(wait)}"


def _left(wait: Wait) -> str:
    if wait.until is None:
        return ""
    seconds = (wait.until - now()).total_seconds()
    return f" for {duration(seconds)}" if seconds > 0 else " is due"
