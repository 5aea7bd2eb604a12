"""From rows of the database to the records of the protocol: one table of columns for each table that is read whole.

`SELECT *` gives columns in the order of `schema.sql`. Columns are only ever appended, and those that a newer release
appended are ignored: a process of the release before goes on working beside it
(tests/stores/test_sqlite_statements.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.kernel.journal import Row
from perdure.store.model import DeadLetter, InboxItem, ItemKind, ParentLink, RunRow, Status, WorkerInfo

Values: TypeAlias = tuple[Any, ...]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(EventPolicy).decode
_decode_definitions = msgspec.json.Decoder(tuple[tuple[str, str], ...]).decode
_statuses = {str(status): status for status in Status}
_kinds = {str(kind): kind for kind in ItemKind}


class StoredRun(NamedTuple):
    """A row of `SELECT * FROM runs`."""

    key: int
    id: str
    generation: int
    workflow: str
    version: str
    status: str
    epoch: int
    owner: str | None
    ready_at: int
    wake_at: int | None
    next_seq: int
    created_at: int
    updated_at: int
    finished_at: int | None
    recoveries: int
    input_digest: bytes
    parent_key: int | None
    parent_generation: int
    parent_location: str
    cancel_requested: int
    frontier: bytes | None
    reason: str | None
    custom_status: bytes | None
    state: bytes | None
    last_item: int
    pruned: int
    watched: int

    def shown(self) -> RunRow:
        """As the protocol shows it: without `ready_at`, which only claims look at."""
        parent = self.parent_key
        return RunRow(
            key=self.key,
            id=self.id,
            generation=self.generation,
            workflow=self.workflow,
            version=self.version,
            status=_statuses[self.status],
            epoch=self.epoch,
            owner=self.owner,
            wake_at=self.wake_at,
            next_seq=self.next_seq,
            created_at=self.created_at,
            updated_at=self.updated_at,
            finished_at=self.finished_at,
            recoveries=self.recoveries,
            input_digest=self.input_digest,
            parent=None if parent is None else ParentLink(parent, self.parent_generation, self.parent_location),
            cancel_requested=bool(self.cancel_requested),
            frontier=self.frontier,
            reason=self.reason,
            custom_status=self.custom_status,
            state=self.state,
            last_item=self.last_item,
            pruned=self.pruned,
        )


class StoredItem(NamedTuple):
    """A row of `SELECT * FROM inbox`."""

    id: int
    run_key: int
    kind: str
    type: str
    data: bytes
    sent_at: int
    previous: int
    policy: str
    expires_at: int | None
    publication: int
    held: int
    request: str

    def shown(self) -> InboxItem:
        return InboxItem(
            id=self.id,
            kind=_kinds[self.kind],
            type=self.type,
            data=self.data,
            sent_at=self.sent_at,
            previous=self.previous,
            policy=read_policy(self.policy),
            expires_at=self.expires_at,
            publication=self.publication,
            request=self.request,
        )


class StoredDeadLetter(NamedTuple):
    """A row of `SELECT * FROM dead_letters`."""

    id: int
    type: str
    data: bytes
    policy: str
    target: str
    target_status: str
    sent_at: int
    died_at: int
    reason: str

    def shown(self) -> DeadLetter:
        return DeadLetter(
            id=self.id,
            type=self.type,
            data=self.data,
            policy=read_policy(self.policy),
            target=self.target,
            target_status=_statuses[self.target_status],
            sent_at=self.sent_at,
            died_at=self.died_at,
            reason=self.reason,
        )


_RUN_COLUMNS, _ITEM_COLUMNS, _LETTER_COLUMNS = (
    len(table._fields) for table in (StoredRun, StoredItem, StoredDeadLetter)
)


def stored_run(values: Values) -> StoredRun:
    return StoredRun._make(values[:_RUN_COLUMNS])


def stored_item(values: Values) -> StoredItem:
    return StoredItem._make(values[:_ITEM_COLUMNS])


def run_row(values: Values) -> RunRow:
    return stored_run(values).shown()


def inbox_item(values: Values) -> InboxItem:
    return stored_item(values).shown()


def dead_letter(values: Values) -> DeadLetter:
    return StoredDeadLetter._make(values[:_LETTER_COLUMNS]).shown()


def records(rows: Iterable[Values]) -> list[Row]:
    return [Row._make(values) for values in rows]


def worker_info(values: Values) -> WorkerInfo:
    worker_id, name, host, pid, started_at, release, definitions = values
    return WorkerInfo(
        id=worker_id, name=name, host=host, pid=pid, started_at=started_at, release=release,
        definitions=_decode_definitions(definitions),
    )  # fmt: skip


def definitions_of(text: str) -> tuple[tuple[str, str], ...]:
    """What `definitions_text` has written."""
    return _decode_definitions(text)


def definitions_text(worker: WorkerInfo) -> str:
    """The workflows that a worker runs, as a column keeps them."""
    return _encode(worker.definitions).decode()


def policy_text(policy: EventPolicy) -> str:
    """How an event travels, as a column keeps it. Nearly all have the defaults."""
    return "" if policy is DEFAULT_POLICY or policy == DEFAULT_POLICY else _encode(policy).decode()


@functools.lru_cache(maxsize=256)
def read_policy(text: str) -> EventPolicy:
    return _decode(text) if text else DEFAULT_POLICY
