"""`perdure delete` and `prune`: keeping the database small."""

from __future__ import annotations

import click

from perdure.cli import output
from perdure.cli.command import changed_store_option, durable, json_option, run_id_argument
from perdure.cli.session import look, session
from perdure.cli.text import identity
from perdure.kernel.verbs.durations import positive_seconds_of
from perdure.store.model import TERMINAL


@click.command()
@run_id_argument
@changed_store_option
@json_option
@durable
async def delete(run_id: str, store: str, as_json: bool) -> None:
    """Remove a run that has ended, with its journal. There is no way back: `perdure export` it first."""
    async with session(store) as opened:
        await opened.admin.delete(run_id)
    if as_json:
        output.print_json({"id": run_id, "deleted": True})
    else:
        output.print_line(f"{identity(run_id)}: deleted")


@click.command()
@changed_store_option
@click.option("--older-than", required=True, metavar="AGE", help="Since the end of a run: '30 days', '12h'.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(sorted(status.value for status in TERMINAL)),
    help="Only these; may be repeated. All ended runs if not given.",
)
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@json_option
@durable
async def prune(
    store: str, older_than: str, statuses: tuple[str, ...], workflow: str | None, dry_run: bool, as_json: bool
) -> None:
    """Remove runs that ended long ago, in small transactions, while workers go on. There is no way back."""
    seconds = positive_seconds_of(older_than, "--older-than")
    async with look(store) if dry_run else session(store) as opened:
        count = await opened.admin.prune(seconds, status=statuses or None, workflow=workflow, dry_run=dry_run)
    if as_json:
        output.print_json({"pruned": 0 if dry_run else count, "matching": count})
    else:
        output.print_line(f"{count:,} runs {'would be' if dry_run else 'were'} removed")
