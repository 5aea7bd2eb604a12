"""`perdure dead-letters`: events that did not reach their run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click
from rich.text import Text

from perdure import limits
from perdure.admin.views import DeadLetterView
from perdure.cli import output
from perdure.cli.command import changed_store_option, durable, json_option, paged_events, store_option
from perdure.cli.session import look, session
from perdure.cli.text import age, identity, now, plain, shortened, value_text
from perdure.engine.engine import Engine
from perdure.errors import BadArgument
from perdure.kernel.verbs.durations import positive_seconds_of


@click.group("dead-letters", context_settings={"help_option_names": ["-h", "--help"]})
def dead_letters() -> None:
    """Events that did not reach their run: list, replay, remove."""


@dead_letters.command("list")
@store_option
@paged_events
@json_option
@durable
async def list_letters(store: str, event_type: str | None, limit: int, after: int, as_json: bool) -> None:
    """List dead letters, oldest first."""
    async with look(store) as opened:
        letters = await opened.admin.dead_letters(type=event_type, limit=limit, after=after)
    if as_json:
        output.print_json({"letters": letters, "next": letters[-1].id if len(letters) == limit else None})
    else:
        _print(letters, limit)


@dead_letters.command("replay")
@click.argument("numbers", metavar="NUMBER...", nargs=-1, required=True, type=click.IntRange(1))
@click.option("--to", "run_id", metavar="ID", help="To this run, which wakes if it waits; otherwise to all.")
@changed_store_option
@json_option
@durable
async def replay(numbers: tuple[int, ...], run_id: str | None, store: str, as_json: bool) -> None:
    """Send dead letters to a run, or publish them. Each is gone from the list when it has been."""
    async with session(store) as opened:
        for number in numbers:
            await opened.admin.replay_dead_letter(number, run_id)
            if not as_json:
                output.print_line(f"{number}: {'published' if run_id is None else f'sent to {identity(run_id)}'}")
    if as_json:
        output.print_json({"replayed": list(numbers), "to": run_id})


@dead_letters.command("remove")
@click.argument("numbers", metavar="[NUMBER]...", nargs=-1, type=click.IntRange(1))
@click.option("--older-than", metavar="DURATION", help="All that died longer ago than this, such as '30 days'.")
@changed_store_option
@json_option
@durable
async def remove(numbers: tuple[int, ...], older_than: str | None, store: str, as_json: bool) -> None:
    """Forget dead letters, by number or by age."""
    if bool(numbers) == (older_than is not None):
        raise BadArgument("say which: numbers, or --older-than.")
    async with session(store) as opened:
        removed = await opened.admin.remove_dead_letters(*numbers) if numbers else 0
        if older_than is not None:
            removed = await _remove_older(opened, positive_seconds_of(older_than, "--older-than"))
    if as_json:
        output.print_json({"removed": removed})
    else:
        output.print_line(f"removed {removed}")


async def _remove_older(opened: Engine, seconds: float) -> int:
    """A page at a time, so that a long list is neither held in memory nor one long transaction."""
    moment = now() - timedelta(seconds=seconds)
    removed = after = 0
    while letters := await opened.admin.dead_letters(limit=limits.PAGE_SIZE_MAX, after=after):
        after = letters[-1].id
        old = [letter.id for letter in letters if letter.died_at <= moment]
        removed += await opened.admin.remove_dead_letters(*old)
    return removed


def _print(letters: Sequence[DeadLetterView], limit: int) -> None:
    table = output.table("number", "event", "data", "for", "age", "reason")
    for letter in letters:
        table.add_row(
            Text(str(letter.id)),
            Text(identity(letter.type)),
            Text(shortened(value_text(letter.data))),
            Text.assemble(identity(letter.target), " (", output.status_text(letter.target_status), ")"),
            Text(age(letter.died_at)),
            Text(shortened(plain(letter.reason))),
        )
    console = output.console()
    console.print(table)
    if not letters:
        console.print(Text("No dead letters.", style="dim"))
    if len(letters) == limit:
        console.print(Text(f"More: --after {letters[-1].id}", style="dim"))
