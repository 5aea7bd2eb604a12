"""Replaying a journal against the code of this process, without a worker and without writing anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from perdure.authoring.registry import Registry
from perdure.errors import Diverged, EncodingError, PerdureError, StoreError, describe, written_out
from perdure.kernel.commands import Warn
from perdure.kernel.divergence import foreseen
from perdure.kernel.eventloop.loop import batch
from perdure.kernel.frontier import Frontier, decode_frontier
from perdure.kernel.journal import Record
from perdure.kernel.run import Run
from perdure.store.items import decode_journal
from perdure.store.model import Loaded, RunRow, Status

T = TypeVar("T")

VerdictKind: TypeAlias = Literal["fine", "diverged", "unknown", "undecodable", "broken"]


class Verdict(NamedTuple):
    """What came of a dry replay. `text` says what is wrong; `warnings` are for the author."""

    kind: VerdictKind
    text: str = ""
    warnings: tuple[str, ...] = ()


FINE = Verdict("fine")


def replay_loaded(registry: Registry, loaded: Loaded) -> Verdict:
    """Replay a run as it is stored. Must be called from a plain loop callback (see kernel.eventloop)."""
    row = loaded.run
    try:
        records = decode_journal(loaded)
        frontier = decode_frontier(row.frontier) if row.frontier is not None else None
    except (StoreError, msgspec.MsgspecError) as error:
        return Verdict("undecodable", _text(error))
    return replay_records(registry, row, records, frontier)


def replay_records(registry: Registry, row: RunRow, records: Sequence[Record], frontier: Frontier | None) -> Verdict:
    """Replay any journal as that of `row`. Must be called from a plain loop callback."""
    try:
        spec = registry.workflow(row.workflow, row.version)
    except PerdureError as error:  # its definition turns out to be wrong when it is first used
        return Verdict("broken", _text(error))
    if spec is None:
        return Verdict("unknown", f"no workflow {row.workflow!r} version {row.version!r} is known here")
    run = Run(spec, row.id, row.generation, latest=registry.latest)
    try:
        commands = run.replay(records, frontier)
    except (KeyboardInterrupt, SystemExit):
        raise
    except Diverged as error:
        text = _text(error)
        return Verdict("diverged", text if row.status is Status.PARKED else foreseen(text, row.id))
    except (EncodingError, StoreError) as error:
        return Verdict("undecodable", _text(error))
    except BaseException as error:
        return Verdict("broken", _text(error))
    finally:
        run.close()
    warnings = tuple(command.message for command in commands if isinstance(command, Warn))
    return Verdict("fine", warnings=warnings) if warnings else FINE


def _text(error: BaseException) -> str:
    return written_out(f"{type(error).__name__}: {error}") if isinstance(error, PerdureError) else describe(error)


async def in_callback(function: Callable[[], T]) -> T:
    """Call `function` from a plain callback of the running loop, outside of any task (see kernel.eventloop)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def call() -> None:
        try:
            with batch():
                result = function()
        except BaseException as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    loop.call_soon(call)
    return await future
