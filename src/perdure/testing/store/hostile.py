"""Hostile values (FAULTS E): whatever people put into texts and payloads means itself, everywhere, exactly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from perdure.kernel.journal import Row
from perdure.limits import NEVER
from perdure.store.model import Status
from perdure.store.protocol import Store
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import (
    World,
    accept,
    cancel,
    create,
    event,
    new_run,
    row_of,
    send,
    step_row,
    turn,
    worker,
)


class Place(NamedTuple):
    """Somewhere a value can be put, and how it is read back."""

    name: str
    store_and_read: Callable[[Store, Any], Awaitable[Any]]


def _row(data: bytes = b"1", location: str = "charge", kind: str = "step_done") -> Row:
    return step_row(2)._replace(data=data, location=location, kind=kind)


async def _record(store: Store, value: bytes) -> Any:
    key = await create(store, "a")
    await accept(store, turn(key, 2, _row(value)))
    return (await store.load([key]))[0].rows[1].data


async def _event(store: Store, value: bytes) -> Any:
    key = await create(store, "a")
    await store.append("a", event(data=value), 9)
    return (await store.inbox(key, 9))[0].data


async def _sent(store: Store, value: bytes) -> Any:
    key, target = await create(store, "a"), await create(store, "b")
    await accept(store, turn(key, 2, send(2, "b", event(data=value))))
    return (await store.inbox(target, 9))[0].data


async def _frontier(store: Store, value: bytes) -> Any:
    await accept(store, turn(await create(store, "a"), 2, frontier=value))
    return (await row_of(store, "a")).frontier


async def _custom_status(store: Store, value: bytes) -> Any:
    await accept(store, turn(await create(store, "a"), 2, custom_status=value))
    return (await row_of(store, "a")).custom_status


async def _state(store: Store, value: bytes) -> Any:
    await accept(store, turn(await create(store, "a"), 2, state=value))
    return (await row_of(store, "a")).state


async def _digest(store: Store, value: bytes) -> Any:
    await create(store, "a", digest=value)
    return (await row_of(store, "a")).input_digest


PAYLOADS = {
    "empty": b"",
    "NUL": b"a\0b",
    "every byte": bytes(range(256)),
    "not UTF-8": b"\xff\xfe\xfd",
    "lone surrogate": b'"\\ud800"',
    "deep": b"[" * 5_000 + b"]" * 5_000,
    "5,000 digits": b"9" * 5_000,
    "1 MB": b'"' + b"x" * 1_000_000 + b'"',
}
BYTES = [
    Place("record", _record),
    Place("event", _event),
    Place("sent", _sent),
    Place("frontier", _frontier),
    Place("custom_status", _custom_status),
    Place("state", _state),
    Place("input_digest", _digest),
]


@cases([(place, name) for place in BYTES for name in PAYLOADS])
def check_bytes_come_back_exactly(world: World, place: Place, name: str) -> None:
    """FAULTS E2 to E8, E17: a store keeps bytes and judges nothing."""

    async def check(store: Store) -> None:
        assert await place.store_and_read(store, PAYLOADS[name]) == PAYLOADS[name]

    world.run(check)


async def _run_id(store: Store, value: str) -> Any:
    await create(store, value)
    return (await row_of(store, value)).id


async def _workflow(store: Store, value: str) -> Any:
    await create(store, "a", workflow=value)
    return (await row_of(store, "a")).workflow


async def _version(store: Store, value: str) -> Any:
    await store.create(replace(new_run("a"), version=value), None)
    return (await row_of(store, "a")).version


async def _location(store: Store, value: str) -> Any:
    key = await create(store, "a")
    await accept(store, turn(key, 2, _row(location=value)))
    return (await store.journal(key, 1))[1].location


async def _event_type(store: Store, value: str) -> Any:
    key = await create(store, "a")
    await store.append("a", event(value), 9)
    return (await store.inbox(key, 9))[0].type


async def _dedup(store: Store, value: str) -> Any:
    key = await create(store, "a")
    for _ in range(2):
        await store.append("a", event(dedup=value), 9)
    await store.append("a", event(dedup=value + "."), 9)
    assert len(await store.inbox(key, 9)) == 2
    return value


async def _park_reason(store: Store, value: str) -> Any:
    assert await store.park(await create(store, "a"), 1, value, 9)
    return (await row_of(store, "a")).reason


async def _cancel_reason(store: Store, value: str) -> Any:
    key = await create(store, "a")
    await store.request_cancel("a", cancel(value))
    return (await store.inbox(key, 9))[0].data.decode()


async def _terminate_reason(store: Store, value: str) -> Any:
    await create(store, "a")
    assert await store.terminate("a", value, 9) is not None
    assert (await row_of(store, "a")).status is Status.CANCELLED
    return value


async def _worker_name(store: Store, value: str) -> Any:
    await store.register_worker(replace(worker("w1"), name=value, host=value))
    (found,) = await store.workers()
    assert found.host == value
    return found.name


TEXTS = {
    "quotes": "'\"`; DROP TABLE runs; --",
    "wildcards": "50%_*?[x]",
    "emoji": "\U0001f4a5\U0001f680",
    "right to left": "\u202eevil\u200b",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "newlines": "a\r\n\tb",
    "braces": "{0} %s \\ $1 :name",
}
PLACES = [
    Place("run_id", _run_id),
    Place("workflow", _workflow),
    Place("version", _version),
    Place("location", _location),
    Place("event_type", _event_type),
    Place("dedup", _dedup),
    Place("park_reason", _park_reason),
    Place("cancel_reason", _cancel_reason),
    Place("terminate_reason", _terminate_reason),
    Place("worker_name", _worker_name),
]


@cases([(place, name) for place in PLACES for name in TEXTS])
def check_texts_mean_themselves(world: World, place: Place, name: str) -> None:
    """FAULTS E19, S2, F12: byte for byte, nothing normalised, nothing taken for syntax."""

    async def check(store: Store) -> None:
        assert await place.store_and_read(store, TEXTS[name]) == TEXTS[name]

    world.run(check)


def check_composed_and_decomposed_ids_are_two_runs(world: World) -> None:
    """FAULTS E19: exact identity."""

    async def check(store: Store) -> None:
        first, second = await create(store, "\u00e9"), await create(store, "e\u0301")
        assert first != second
        assert (await row_of(store, "\u00e9")).key == first
        assert await store.get("\u00c9") is None, "case matters too"

    world.run(check)


@cases([0, 1, 2**31, 2**53 + 1, NEVER])
def check_numbers_come_back_exactly(world: World, number: int) -> None:
    """FAULTS E5: times are integers of 64 bits; nothing goes through a float."""

    async def check(store: Store) -> None:
        key = await create(store, "a", at=number)
        await store.append("a", event(at=number), 9)
        await accept(store, turn(key, 2, step_row(2)._replace(at=number, check=2**32 - 1), at=number))
        (loaded,) = await store.load([key])
        assert (loaded.run.created_at, loaded.run.updated_at) == (number, number)
        assert (loaded.rows[1].at, loaded.rows[1].check) == (number, 2**32 - 1)
        assert loaded.inbox[0].sent_at == number

    world.run(check)
