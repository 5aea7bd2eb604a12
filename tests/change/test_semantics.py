"""The number of the replay rules: stamped when a run starts, and read before it is replayed."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from perdure import workflow
from perdure.errors import RunParked
from perdure.kernel import journal
from perdure.kernel.journal import Record, Started, from_row, to_row
from perdure.types import Status
from stores.store_kit import new_run
from support.lives import Lives, run_async


@workflow
async def follows_rules() -> str:
    return "done"


def test_a_run_that_follows_newer_rules_is_parked_with_the_advice_to_upgrade(lives: Lives) -> None:
    """And one that follows those of today goes on."""

    async def main() -> None:
        store = lives.store()
        await store.open()
        for name, number in (("newer", journal.SEMANTICS + 1), ("ours", journal.SEMANTICS)):
            started = Started("follows_rules", "1", Raw(b"{}"), 7, number)
            new = new_run(name, workflow="follows_rules", owner=None)
            await store.create(msgspec.structs.replace(new, started=to_row(Record(1, 1, "", started))), None)
        await store.close()
        async with lives.engine(worker=False) as client:
            verdicts = {run.id: run async for run in client.admin.check()}
            assert verdicts["ours"].is_fine
            assert verdicts["newer"].verdict == "undecodable"
            assert "upgrade this worker" in verdicts["newer"].text
        async with lives.engine() as engine:
            assert await engine.result("ours", timeout=20) == "done"
            with pytest.raises(RunParked, match="It was started by a newer perdure: upgrade this worker"):
                await engine.result("newer", timeout=20)
            assert (await engine.status("newer")).status is Status.PARKED

    run_async(main())


def test_a_started_record_without_a_number_follows_the_first_rules_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields with their default are left out of the bytes: the default must not move with the newest number."""
    row = to_row(Record(1, 1, "", Started("order", "1", Raw(b"[]"), 7)))
    assert b"semantics" not in row.data
    monkeypatch.setattr(journal, "SEMANTICS", 2)
    body = from_row(row).body
    assert isinstance(body, Started)
    assert body.semantics == 1
    assert b'"semantics":2' in to_row(Record(1, 1, "", Started("order", "1", Raw(b"[]"), 7, 2))).data
