"""`perdure fork`: a new run from the past of another."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from msgspec import Raw

from perdure.cli import output
from perdure.cli.command import changed_store_option, durable, json_option, read_argument, run_id_argument
from perdure.cli.session import session
from perdure.cli.text import identity
from perdure.errors import BadArgument


@click.command()
@run_id_argument
@changed_store_option
@click.option("--id", "new_id", metavar="NEW", help="The id of the new run; a random one if not given.")
@click.option("--at", "location", metavar="LOCATION", help="Up to here, as `perdure history` shows it; else the start.")
@click.option("--result", metavar="JSON", help="What the operation there returns; without it, it happens again.")
@click.option("--input", "arguments", metavar="JSON", help="An object: arguments of the workflow to replace.")
@click.option("--generation", type=click.IntRange(1), help="Of the run, if not the current one.")
@click.option("--paused", is_flag=True, help="Do not let it run yet.")
@json_option
@durable
async def fork(
    run_id: str, store: str, new_id: str | None, location: str | None, result: str | None, arguments: str | None,
    generation: int | None, paused: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make a new run that has the journal of ID up to a location. ID itself is only read.

    JSON is what `perdure history --full` shows; `-` reads it from standard input.
    """
    edited: Any = ... if result is None else _json(result, "--result", Raw)
    replaced = None if arguments is None else _json(arguments, "--input", dict[str, Raw])
    async with session(store) as opened:
        made = await opened.admin.fork(
            run_id, id=new_id, at=location, result=edited, arguments=replaced, generation=generation, paused=paused
        )
    if as_json:
        output.print_json({"id": made, "from": run_id})
    else:
        output.print_line(identity(made))


def _json(text: str, option: str, kind: Any) -> Any:
    """Checked to be JSON, and kept as it was written: a number must not change on its way into a journal."""
    data = read_argument(text).strip().encode()
    try:
        msgspec.json.decode(data)
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        shape = ' It is an object of arguments by name, such as {"cents": 500}.' if option == "--input" else ""
        raise BadArgument(f"{option} was not understood: {error}.{shape}") from None
