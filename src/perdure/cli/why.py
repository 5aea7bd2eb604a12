"""`perdure why`: the exact reason a run is not moving."""

from __future__ import annotations

import click

from perdure.cli import output
from perdure.cli.command import durable, json_option, run_id_argument, store_option
from perdure.cli.session import look
from perdure.cli.text import identity, lines


@click.command()
@run_id_argument
@store_option
@json_option
@durable
async def why(run_id: str, store: str, as_json: bool) -> None:
    """Why a run is not moving: what it waits for, since when, until when, and who would have to do something."""
    async with look(store) as opened:
        reason = await opened.admin.why(run_id)
    if as_json:
        output.print_json(reason)
        return
    output.print_line(f"{identity(run_id)}: {lines(reason.text)}")
    for note in reason.also:
        output.print_line(f"  also: {lines(note)}")
