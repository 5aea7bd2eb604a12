"""`perdure cancel`, `terminate` and `resume`: changing how a run goes on."""

from __future__ import annotations

import click

from perdure.cli import output
from perdure.cli.command import durable, json_option, run_id_argument, store_option
from perdure.cli.session import Session, session
from perdure.cli.text import identity


@click.command()
@run_id_argument
@store_option
@click.option("--reason", default="", help="Kept with the run.")
@json_option
@durable
async def cancel(run_id: str, store: str, reason: str, as_json: bool) -> None:
    """Ask a run to cancel; its code may clean up. Nothing changes if it has ended or was asked before."""
    async with session(store) as opened:
        changed = await opened.engine.cancel(run_id, reason)
        await _say(opened, run_id, "asked to cancel", "nothing to cancel", changed, as_json)


@click.command()
@run_id_argument
@store_option
@click.option("--reason", default="", help="Kept with the run.")
@json_option
@durable
async def terminate(run_id: str, store: str, reason: str, as_json: bool) -> None:
    """End a run now, without its cleanup; its children are asked to cancel."""
    async with session(store) as opened:
        changed = await opened.engine.terminate(run_id, reason)
        await _say(opened, run_id, "terminated", "it had already ended", changed, as_json)


@click.command()
@run_id_argument
@store_option
@json_option
@durable
async def resume(run_id: str, store: str, as_json: bool) -> None:
    """Let a parked run go on, after its reason was resolved. Needs a worker to run it."""
    async with session(store) as opened:
        changed = await opened.engine.resume(run_id)
        await _say(opened, run_id, "goes on", "it is not parked", changed, as_json)


async def _say(opened: Session, run_id: str, done: str, nothing: str, changed: bool, as_json: bool) -> None:
    view = await opened.engine.status(run_id)
    if as_json:
        output.print_json({"id": run_id, "changed": changed, "status": view.status})
    else:
        output.print_line(f"{identity(run_id)}: {done if changed else nothing} (status {view.status})")
