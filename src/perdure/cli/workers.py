"""`perdure workers`: who works on this store, and how each of them stands."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.text import Text

from perdure.admin.fleet import State, WorkerView
from perdure.cli import output
from perdure.cli.command import durable, json_option, store_option
from perdure.cli.session import look
from perdure.cli.text import age, clock, duration, identity

_STYLES: dict[State, str] = {"alive": "green", "draining": "yellow", "silent": "bold magenta", "dead": "bold red"}
#: Workflows that the table names for each worker; `--full` and `--json` name all.
_SERVED_MAX = 4


@click.command()
@store_option
@click.option("--full", is_flag=True, help="Name every workflow that a worker runs.")
@json_option
@durable
async def workers(store: str, full: bool, as_json: bool) -> None:
    """List workers: who they are, whether they live, how long their lease lasts, what they run and how many runs they
    hold.

    alive: all is well. draining: it leaves, and gives back its runs. silent: it has not renewed its lease in time, or
    its process is gone. dead: others take its runs.
    """
    async with look(store) as opened:
        found = list((await opened.admin.workers()).values())
    if as_json:
        output.print_json({"workers": found})
    else:
        _print(found, full)


def _print(found: Sequence[WorkerView], full: bool) -> None:
    if not found:
        output.console().print(Text("No workers. Start one: perdure worker --app ...", style="dim"))
        return
    table = output.table("name", "host", "pid", "state", "started", "lease", "runs", "perdure", "runs workflows")
    for right in (2, 6):
        table.columns[right].justify = "right"
    for whole in (3, 4):
        table.columns[whole].no_wrap = True
    for one in found:
        table.add_row(
            Text(identity(one.name)),
            Text(identity(one.host)),
            Text(str(one.pid)),
            Text(one.state, style=_STYLES[one.state]),
            Text(f"{age(one.started_at)} ago"),
            Text(_lease(one)),
            Text(str(one.held)),
            Text(identity(one.release) or "?"),
            Text(_served(one, full)),
        )
    console = output.console()
    console.print(table)
    held = sum(one.held for one in found)
    console.print(Text(f"{len(found)} workers with {held} open runs in memory.", style="dim"))


def _lease(worker: WorkerView) -> str:
    """What decides whether it lives, and since when it leaves."""
    lease = worker.lease
    parts = [] if lease is not None else ["file lock" if worker.state != "dead" else "file lock is free"]
    if lease is not None and worker.state == "dead":
        parts.append(f"renewed {duration(lease.renewed_seconds_ago)} ago, its runs are being taken over")
    elif lease is not None:
        left = f"ends in {duration(lease.left_seconds)}" if lease.left_seconds > 0 else "has ended"
        parts.append(f"renewed {duration(lease.renewed_seconds_ago)} ago, {left}")
        if lease.is_process_gone:
            parts.append(f"its process is gone, taken over at {clock(lease.take_over_at)}")
    if worker.draining_since is not None:
        parts.append(f"leaving for {age(worker.draining_since)}")
    return "; ".join(parts)


def _served(worker: WorkerView, full: bool) -> str:
    names = [identity(str(one)) for one in worker.serves]
    if not names and not worker.release:
        return "does not say"
    shown = names if full else names[:_SERVED_MAX]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (", ".join(shown) or "none") + more
