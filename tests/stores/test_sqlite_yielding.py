"""The loop's thread lets an idle writer begin with a large group, and waits for nothing else (decision 0100)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.store.protocol import Store
from perdure.store.sqlite import bulk, pace
from perdure.store.sqlite.pace import Pace
from perdure.store.sqlite.session import Session
from perdure.testing.store.batches import create_many
from stores.store_kit import World, row_of, send, step_row, turn

#: Never over in these tests: a thread that waits for it has waited for something that does not come.
LONG = 30.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine must not decide these tests."""
    monkeypatch.setattr(pace, "YIELD_SECONDS_MAX", LONG)
    monkeypatch.setattr(pace, "GUESS_SECONDS_MAX", LONG)


def noting(monkeypatch: pytest.MonkeyPatch, go_on: threading.Event | None = None) -> list[str]:
    """What happens to groups, in the order in which it happens. With `go_on`, SQLite takes until that is set."""
    seen: list[str] = []
    commit_all = bulk.commit_all

    def noted(session: Session, requests: Sequence[bulk.Request], begun: Callable[[int], None]) -> Any:
        def begins(rows: int) -> None:
            seen.append("begun")
            begun(rows)
            if go_on is not None:
                go_on.wait(LONG)

        return commit_all(session, requests, begins)

    monkeypatch.setattr(bulk, "commit_all", noted)
    return seen


def test_a_large_group_has_begun_when_an_idle_writer_got_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = noting(monkeypatch)

    async def check(store: Store) -> None:
        keys = await create_many(store)
        for seq in (2, 3):
            seen.clear()
            future = asyncio.ensure_future(store.commit([turn(key, seq, step_row(seq)) for key in keys]))
            assert seen == ["begun"]
            await future

    World("sqlite", tmp_path).run(check)


@pytest.mark.parametrize("is_due", [True, False])
def test_a_busy_writer_is_waited_for_if_it_should_be_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_due: bool
) -> None:
    """Decision 0104: the loop waits until the writer has begun with the next group, or not at all."""
    go_on = threading.Event()
    monkeypatch.setattr(Pace, "probably_wants_gil", lambda pace: is_due)

    async def check(store: Store) -> None:
        keys = await create_many(store)
        seen = noting(monkeypatch, None if is_due else go_on)
        half = len(keys) // 2
        futures = [
            asyncio.ensure_future(store.commit([turn(key, 2, step_row(2)) for key in some]))
            for some in (keys[:half], keys[half:])
        ]
        assert seen == (["begun", "begun"] if is_due else ["begun"])
        go_on.set()
        await asyncio.gather(*futures)
        assert seen == ["begun", "begun"]

    World("sqlite", tmp_path).run(check)


def test_small_and_unusual_jobs_are_not_waited_for(tmp_path: Path) -> None:
    """Of those the loop would wait for the disk: they take the general path, and so does a group with an effect in
    it."""

    async def check(store: Store) -> None:
        keys = await create_many(store)
        asyncio.get_running_loop().call_soon(lambda: None)  # so that it is not committed here
        began = time.monotonic()
        small = asyncio.ensure_future(store.commit([turn(keys[0], 2, step_row(2))]))
        assert time.monotonic() - began < LONG / 2
        await small
        effects = [turn(key, 2, step_row(2)) for key in keys[1:-1]] + [turn(keys[-1], 2, send(2, "r0"))]
        await store.commit(effects)
        assert time.monotonic() - began < LONG / 2
        assert (await row_of(store, "r5")).next_seq == 3

    World("sqlite", tmp_path).run(check)


def test_a_group_that_does_not_fit_is_not_waited_for(tmp_path: Path) -> None:
    async def check(store: Store) -> None:
        keys = await create_many(store)
        turns = [turn(key, 2, step_row(2)) for key in keys]
        turns[7] = turn(keys[7], 2, step_row(2), epoch=9)
        began = time.monotonic()
        await store.commit(turns)
        assert time.monotonic() - began < LONG / 2
        assert (await row_of(store, "r7")).next_seq == 2

    World("sqlite", tmp_path).run(check)
