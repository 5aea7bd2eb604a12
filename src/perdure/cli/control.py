"""`perdure cancel`, `terminate`, `resume`, `pause`, `unpause`, `retry`: changing how a run goes on."""

from __future__ import annotations

import click

from perdure.cli import output
from perdure.cli.apps import import_apps
from perdure.cli.command import app_option, changed_store_option, durable, json_option, run_id_argument
from perdure.cli.session import session
from perdure.cli.text import identity
from perdure.engine.engine import Engine


@click.command()
@run_id_argument
@changed_store_option
@click.option("--reason", default="", help="Kept with the run.")
@json_option
@durable
async def cancel(run_id: str, store: str, reason: str, as_json: bool) -> None:
    """Ask a run to cancel; its code may clean up. Nothing changes if it has ended or was asked before."""
    async with session(store) as opened:
        changed = await opened.cancel(run_id, reason)
        await _say(opened, run_id, "asked to cancel", "nothing to cancel", changed, as_json)


@click.command()
@run_id_argument
@changed_store_option
@click.option("--reason", default="", help="Kept with the run.")
@json_option
@durable
async def terminate(run_id: str, store: str, reason: str, as_json: bool) -> None:
    """End a run now, without its cleanup; its children are asked to cancel."""
    async with session(store) as opened:
        changed = await opened.admin.terminate(run_id, reason)
        await _say(opened, run_id, "terminated", "it had already ended", changed, as_json)


@click.command()
@run_id_argument
@changed_store_option
@app_option
@json_option
@durable
async def resume(run_id: str, store: str, apps: tuple[str, ...], as_json: bool) -> None:
    """Let a parked run go on, after its reason was resolved; or a failed one, from its last good record.

    Needs a worker to run it. With --app it is first checked whether the journal still fits the code.
    """
    import_apps(apps)
    async with session(store) as opened:
        changed = await opened.admin.resume(run_id)
        await _say(opened, run_id, "goes on", "it is not parked and has not failed", changed, as_json)


@click.command()
@run_id_argument
@changed_store_option
@click.option("--by", default="", help="Who pauses it, and why; kept with the run.")
@json_option
@durable
async def pause(run_id: str, store: str, by: str, as_json: bool) -> None:
    """Stop a run until it is unpaused. Steps that are running are cancelled; events go on arriving."""
    async with session(store) as opened:
        changed = await opened.admin.pause(run_id, by)
        await _say(opened, run_id, "stopped", "it is paused already", changed, as_json)


@click.command()
@run_id_argument
@changed_store_option
@json_option
@durable
async def unpause(run_id: str, store: str, as_json: bool) -> None:
    """Let a paused run go on. Needs a worker to run it."""
    async with session(store) as opened:
        changed = await opened.admin.unpause(run_id)
        await _say(opened, run_id, "goes on", "it is not paused", changed, as_json)


@click.command()
@run_id_argument
@click.argument("location", default="")
@changed_store_option
@json_option
@durable
async def retry(run_id: str, location: str, store: str, as_json: bool) -> None:
    """Begin the next attempt of a step that is in a backoff now; of all such steps, without LOCATION."""
    async with session(store) as opened:
        await opened.admin.retry(run_id, location)
        await _say(opened, run_id, "the next attempt begins now", "", True, as_json)


async def _say(opened: Engine, run_id: str, done: str, nothing: str, changed: bool, as_json: bool) -> None:
    view = await opened.status(run_id)
    if as_json:
        output.print_json({"id": run_id, "changed": changed, "status": view.status})
    else:
        output.print_line(f"{identity(run_id)}: {done if changed else nothing} (status {view.status})")
