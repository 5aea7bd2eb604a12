"""SQLite carries out a large batch of plain requests by one statement. What must come of it is in the store suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.journal import Row
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore, bulk, group_commit
from perdure.store.sqlite.session import Session
from perdure.testing.store.batches import MANY, create_many
from stores.store_kit import World, finishing, row_of, step_row, turn


def test_the_fast_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the checks of batches would show nothing about it."""
    taken: list[int] = []
    commit_all = bulk.commit_all

    def count(session: Session, requests: Sequence[bulk.Request], *more: Any) -> list[Sequence[Any]] | None:
        answers = commit_all(session, requests, *more)
        if answers is not None:
            taken.append(sum(map(len, answers)))
        return answers

    monkeypatch.setattr(bulk, "commit_all", count)

    async def check(store: Store) -> None:
        assert isinstance(store, SQLiteStore)
        keys = await create_many(store)
        await store.commit([turn(key, 2, step_row(2)) for key in keys])
        await store.commit([finishing(key, 3) for key in keys])
        await store.commit([turn(keys[0], 2, step_row(2)), turn(keys[1], 2, step_row(2))])

    World("sqlite", tmp_path).run(check)
    assert taken == [MANY] * 3


def test_a_fault_in_the_fast_path_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B: whatever happens in the middle of the statement, the batch is stored whole or not at all."""

    async def check(store: Store) -> None:
        keys = await create_many(store)
        rows: list[Row] = [step_row(2)] * MANY
        turns = [turn(key, 2, row) for key, row in zip(keys, rows, strict=True)]
        # The record of the last run is there already, as if written by a bug: the insert hits the unique index.
        turns[-1] = turn(keys[-1], 2, step_row(1))
        long_way: list[int] = []
        job_by_job = group_commit._job_by_job
        monkeypatch.setattr(group_commit, "_job_by_job", lambda *given: long_way.append(1) or job_by_job(*given))
        with pytest.raises(Exception, match="UNIQUE"):
            await store.commit(turns)
        assert long_way
        assert {(await row_of(store, f"r{n}")).next_seq for n in range(MANY)} == {2}
        assert {len(await store.journal(key, 1)) for key in keys} == {1}

    World("sqlite", tmp_path).run(check)
