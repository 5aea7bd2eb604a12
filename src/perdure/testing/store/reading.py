"""Filters mean what they say, pages hold still while runs change, bytes come back as they went."""

from __future__ import annotations

from typing import Any

from perdure.store.model import ParentLink, RunFilter, Status
from perdure.store.protocol import Store
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import World, accept, create, event, finishing, row_of, started_row, step_row, turn

HOSTILE = [
    "'; DROP TABLE runs; --",
    'a"b',
    "50%",
    "50_",
    "5*",
    "\U0001f4a5\U0001f680",
    "\u202eevil",
    "\u00e9",
    "e\u0301",
    "a/../b",
    "[x]",
    "\\",
]


async def ids(store: Store, limit: int = 100, before: int | None = None, **where: Any) -> list[str]:
    return [row.id for row in await store.list_runs(RunFilter(**where), limit, before)]


def check_filters_narrow_and_the_newest_come_first(world: World) -> None:
    """CONFORMANCE L5: status, workflow, prefix and parent, alone and together."""

    async def check(store: Store) -> None:
        parent = await create(store, "p-1")
        link = ParentLink(key=parent, generation=1, location="c")
        for number in range(4):
            key = await create(store, f"c-{number}", parent=link, workflow=("ship", "bill")[number % 2])
            if number >= 2:
                await accept(store, finishing(key, 2, status=Status.FAILED if number == 3 else Status.COMPLETED))
        await create(store, "c-waits", owner=None)
        assert await ids(store) == ["c-waits", "c-3", "c-2", "c-1", "c-0", "p-1"]
        assert await ids(store, limit=2) == ["c-waits", "c-3"]
        assert await ids(store, statuses=frozenset({Status.FAILED, Status.RUNNING})) == [
            "c-3",
            "c-1",
            "c-0",
            "p-1",
        ]
        assert await ids(store, statuses=frozenset({Status.FAILED, Status.COMPLETED})) == ["c-3", "c-2"]
        assert await ids(store, workflow="ship") == ["c-2", "c-0"]
        assert await ids(store, workflow="ship", statuses=frozenset({Status.RUNNING})) == ["c-0"]
        assert await ids(store, parent_key=parent) == ["c-3", "c-2", "c-1", "c-0"]
        assert await ids(store, parent_key=parent, statuses=frozenset({Status.FAILED})) == ["c-3"]
        assert await ids(store, id_prefix="c-") == ["c-waits", "c-3", "c-2", "c-1", "c-0"]
        assert await ids(store, id_prefix="c-", parent_key=parent, workflow="bill") == ["c-3", "c-1"]
        assert await ids(store, id_prefix="c-", statuses=frozenset({Status.PENDING})) == ["c-waits"]
        assert await ids(store, id_prefix="c-", statuses=frozenset({Status.CANCELLED})) == []
        counts = {Status.RUNNING: 3, Status.COMPLETED: 1, Status.FAILED: 1, Status.PENDING: 1}
        assert await store.count_runs() == counts

    world.run(check)


def check_pages_hold_still_while_runs_change(world: World) -> None:
    """CONFORMANCE L5: runs that start, move on or end between two pages are neither repeated nor skipped."""

    async def check(store: Store) -> None:
        keys = [await create(store, f"r{number}") for number in range(6)]
        first = await store.list_runs(RunFilter(), 3)
        await create(store, "new")
        await accept(store, turn(keys[2], 2, step_row(2)))
        await accept(store, finishing(keys[0], 2))
        assert [row.id for row in first] == ["r5", "r4", "r3"]
        assert await ids(store, 3, first[-1].key) == ["r2", "r1", "r0"]
        assert await ids(store, 3, keys[0]) == []

    world.run(check)


@cases(HOSTILE)
def check_hostile_ids_are_only_text(world: World, run_id: str) -> None:
    """FAULTS S2, E19, F12: quotes, wildcards and odd characters mean themselves; nothing is normalised."""

    async def check(store: Store) -> None:
        await create(store, run_id)
        await create(store, "50 something")
        await create(store, "plain")
        assert (await row_of(store, run_id)).id == run_id
        assert await ids(store, id_prefix=run_id) == [run_id]
        assert await ids(store, id_prefix=run_id[:1] + "%") == ([run_id] if run_id.startswith(run_id[:1] + "%") else [])

    world.run(check)


def check_prefixes_at_the_end_of_unicode(world: World) -> None:
    """FAULTS F12: a prefix whose last character has no successor still finds its runs."""

    async def check(store: Store) -> None:
        names = ["\U0010ffff", "\U0010ffff\U0010ffff", "a\U0010ffff", "a\ud7ffb", "b"]
        for name in names:
            await create(store, name)
        assert await ids(store, id_prefix="\U0010ffff") == names[1::-1]
        assert await ids(store, id_prefix="a\U0010ffff") == ["a\U0010ffff"]
        assert await ids(store, id_prefix="a\ud7ff") == ["a\ud7ffb"]
        assert len(await ids(store, id_prefix="")) == 5

    world.run(check)


def check_bytes_come_back_as_they_went(world: World) -> None:
    """FAULTS E4, E17, B10: NUL, empty, not UTF-8, of a kind nobody knows: a store keeps bytes and judges nothing."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        payloads = [b"", b"\0", b"a\0b", b"\xff\xfe", b"null", b"x" * 300_000]
        rows = [step_row(2 + n)._replace(data=data, kind="of the future") for n, data in enumerate(payloads)]
        await accept(store, turn(key, 2, *rows, state=b"\0state", frontier=b"\0"))
        for data in payloads:
            await store.append("a", event(data=data), 99)
        (loaded,) = await store.load([key, 999])
        assert list(loaded.rows) == [started_row(), *rows]
        assert [item.data for item in loaded.inbox] == payloads
        assert (loaded.run.state, loaded.run.frontier) == (b"\0state", b"\0")

    world.run(check)


def check_a_journal_can_be_read_in_parts(world: World) -> None:
    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, *[step_row(seq) for seq in range(2, 8)]))
        assert [row.seq for row in await store.journal(key, 1, after_seq=2, limit=3)] == [3, 4, 5]
        assert [row.seq for row in await store.journal(key, 1, after_seq=6)] == [7]
        assert list(await store.journal(key, 2)) == []
        assert list(await store.journal(999, 1)) == []

    world.run(check)


def check_loading_writes_nothing(world: World) -> None:
    """CONFORMANCE R9: a run looks the same after it was read."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        before = await row_of(store, "a")
        await store.load([key])
        assert await row_of(store, "a") == before

    world.run(check)
