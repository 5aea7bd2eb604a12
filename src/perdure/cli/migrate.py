"""`perdure migrate`: everything of one store to another, while both are used."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from perdure.admin import move
from perdure.admin.looking import wall_clock
from perdure.cli import output
from perdure.cli.command import MIGRATE, durable, json_option
from perdure.cli.exits import ExitCode, ended
from perdure.cli.session import find_store
from perdure.cli.text import identity
from perdure.errors import BadArgument, MoveRefused
from perdure.store.model import Status
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore

#: How often progress is told.
_TELL_SECONDS = 0.5
_WORDS = {
    "copying": "copying ended runs",
    "handing-over": "handing over open runs",
    "arriving": "letting them go on",
    "done": "done",
    "verifying": "comparing",
}


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--copy-only", is_flag=True, help="Copy ended runs now, and hand over with a later call.")
@click.option("--undo", is_flag=True, help="Take back a move that was begun and not decided.")
@click.option("--verify", is_flag=True, help="Compare every run in both stores, after a move.")
@click.option("--dry-run", is_flag=True, help="Only count what there is to move; TO is not opened.")
@click.option(
    "--migrate",
    "may_migrate",
    is_flag=True,
    envvar="PERDURE_MIGRATE",
    show_envvar=True,
    help="Bring stores of an older perdure to the schema of this one.",
)
@json_option
@click.pass_context
def migrate(
    context: click.Context, source: str, target: str, copy_only: bool, undo: bool, verify: bool, dry_run: bool,
    may_migrate: bool, as_json: bool,
) -> None:  # fmt: skip
    """Move everything from one store to another: sqlite:///a.db to postgresql://..., and back.

    Workers go on with the old store until the open runs are handed over, which takes seconds. Then callers of the old
    store are told where everything is (RunMoved). Nothing is deleted there. Whenever this was interrupted, run it
    again: it goes on.
    """
    if sum((copy_only, undo, verify, dry_run)) > 1:
        raise click.UsageError("--copy-only, --undo, --verify and --dry-run exclude each other.")
    context.meta[MIGRATE] = may_migrate
    chosen = "undo" if undo else "verify" if verify else "count" if dry_run else "copy" if copy_only else "move"
    _migrate(source, target, chosen, as_json=as_json)


@durable
async def _migrate(source: str, target: str, chosen: str, *, as_json: bool) -> None:
    if chosen == "count":
        async with _opened(source, create=False) as old:
            _print_counts(await old.count_runs(), as_json)
        return
    async with _opened(source, create=False) as old:
        _refuse_same_file(old, target)
        async with _opened(target, create=chosen in ("move", "copy")) as new:
            with _shown_progress(as_json) as tell:
                mover = move.Mover(old, new, url_of(new), now=wall_clock, tell=tell)
                say = await _carried_out(mover, chosen, url_of(new), as_json)
            say()  # after the progress bar is gone


async def _carried_out(mover: move.Mover, chosen: str, target: str, as_json: bool) -> Callable[[], None]:
    """Do what was chosen; returns what says how it went."""
    match chosen:
        case "undo":
            return partial(_print_undone, await mover.undo(), as_json)
        case "verify":
            return partial(_print_verified, await mover.verify(), as_json)
        case _:
            return partial(_print_moved, await mover.move(hand_over=chosen == "move"), target, as_json)


@asynccontextmanager
async def _opened(url: str, *, create: bool) -> AsyncGenerator[Store, None]:
    store = find_store(url, create=create)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def _refuse_same_file(old: Store, target: str) -> None:
    """Before a second connection is made to the file. Two names of one database are found out by what is in it."""
    new = find_store(target, create=True)
    if isinstance(old, SQLiteStore) and isinstance(new, SQLiteStore) and old.path == new.path:
        raise MoveRefused(f"both are the same store: {old.path}. Name another target.")


def url_of(store: Store) -> str:
    """The URL of a store, without its password: what callers of the old store are told."""
    if isinstance(store, SQLiteStore):
        return f"sqlite:///{quote(Path(store.path).as_posix())}"
    location = getattr(store, "location", None)
    if location is None:
        raise BadArgument(f"a {type(store).__name__} has no URL to tell others.")
    shown: str = location.shown
    return shown


# -- how far it is -----------------------------------------------------------------------------------------


@contextmanager
def _shown_progress(as_json: bool) -> Generator[Callable[[move.Progress], None]]:
    """A bar for people, on stderr; with --json a line now and then, on stdout."""
    if as_json:
        yield _Lines().tell
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True, markup=False, highlight=False)) as bar:
        yield _Bar(bar).tell


class _Lines:
    def __init__(self) -> None:
        self._last = ("", 0.0)

    def tell(self, progress: move.Progress) -> None:
        phase, at = self._last
        now = time.monotonic()
        if progress.phase != phase or now - at >= _TELL_SECONDS:
            self._last = (progress.phase, now)
            output.print_json({"phase": progress.phase, "done": progress.done, "total": progress.total})


class _Bar:
    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._tasks: dict[str, tuple[TaskID, float, int]] = {}

    def tell(self, progress: move.Progress) -> None:
        if progress.phase not in self._tasks:
            task = self._bar.add_task(_WORDS[progress.phase], total=progress.total, rate="")
            self._tasks[progress.phase] = (task, time.monotonic(), progress.done)
        task, began, first = self._tasks[progress.phase]
        seconds = time.monotonic() - began
        rate = f"{(progress.done - first) / seconds:,.0f}/s" if seconds > _TELL_SECONDS else ""
        self._bar.update(task, completed=progress.done, total=progress.total, rate=rate)


# -- what came of it ---------------------------------------------------------------------------------------


def _print_counts(counts: Mapping[Status, int], as_json: bool) -> None:
    found = {str(status): count for status, count in counts.items()}
    total = sum(found.values())
    if as_json:
        output.print_json({"runs": total, "counts": found})
    else:
        listed = ", ".join(f"{count:,} {status}" for status, count in sorted(found.items()))
        output.print_line(f"{total:,} runs would be moved{': ' + listed if listed else ''}")


def _print_undone(done: bool, as_json: bool) -> None:
    if as_json:
        output.print_json({"undone": done})
    else:
        output.print_line("taken back: the old store works on" if done else "nothing had been begun")


def _print_verified(verified: move.Verified, as_json: bool) -> None:
    if as_json:
        output.print_json(verified)
    else:
        output.print_line(
            f"{verified.same:,} runs are the same, {verified.went_on:,} have gone on since, {verified.removed:,} were "
            f"removed since, {len(verified.different):,} differ"
        )
        for run_id in verified.different[:50]:
            output.print_line(f"  {identity(run_id)}")
    if verified.different:
        raise ended(ExitCode.NOT_THE_SAME)


def _print_moved(moved: move.Moved, target: str, as_json: bool) -> None:
    if as_json:
        output.print_json({**{name: getattr(moved, name) for name in moved.__struct_fields__}, "target": target})
    elif not moved.handed_over:
        output.print_line(
            f"{moved.runs:,} ended runs are copied, and the old store works on. The same call without --copy-only "
            "copies what ended since, and hands over."
        )
    elif moved.pause is None:
        output.print_line(f"everything was moved before: {moved.runs:,} runs are at {target}")
    else:
        output.print_line(
            f"{moved.runs:,} runs are at {target}, {moved.open:,} of them open; those stood still for "
            f"{moved.pause:.1f} s. Callers of the old store are told."
        )
