"""`perdure fork`: a new run from the past of another."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from msgspec import Raw

from perdure.cli import output
from perdure.cli.command import durable, json_option, read_argument, run_id_argument, store_option
from perdure.cli.session import session
from perdure.cli.text import identity
from perdure.errors import BadArgument


@click.command()
@run_id_argument
@store_option
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
    edited: Any = ... if result is None else Raw(msgspec.json.encode(_json(result, "--result")))
    replaced = None if arguments is None else _json(arguments, "--input")
    if replaced is not None and not isinstance(replaced, dict):
        raise BadArgument('--input is a JSON object of arguments by name, such as {"cents": 500}.')
    async with session(store) as opened:
        made = await opened.engine.fork(
            run_id, id=new_id, at=location, result=edited, arguments=replaced, generation=generation, paused=paused
        )
    if as_json:
        output.print_json({"id": made.id, "from": run_id})
    else:
        output.print_line(identity(made.id))


def _json(text: str, option: str) -> Any:
    try:
        return msgspec.json.decode(read_argument(text))
    except msgspec.MsgspecError as error:
        raise BadArgument(f"{option} is not JSON: {error}.") from None
