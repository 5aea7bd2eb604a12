"""All that the store has goes to another one, or comes from one: `store.move` says in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from perdure.limits import AT_ONCE
from perdure.store import refusals, rules
from perdure.store.memory import inbox
from perdure.store.memory.tables import Coming, PublishedEvent, Run, Tables, Wait
from perdure.store.model import CLAIMABLE, InboxItem, ItemKind, ParentLink, RunKey, Status
from perdure.store.move import (
    Departure,
    MovedPublication,
    Numbers,
    Packed,
    Receipt,
    Received,
    Relations,
    Remainder,
    Waiting,
    arriving_waits,
    items_elsewhere,
    mark_of,
    newest_before,
    status_elsewhere,
)

# -- leaving ---------------------------------------------------------------------------------------------


def depart(tables: Tables, target: str, target_id: str, at: int) -> Departure:
    if tables.departure is None:
        for run in tables.runs.values():
            run.owner = None
            if not run.status.terminal:
                run.epoch += 1
            if run.status in CLAIMABLE:
                run.status = Status.MOVED
        tables.unowned.clear()
        tables.ended_under_owner.clear()
        tables.workers.clear()
        tables.dead_workers.clear()
        tables.departure = Departure(target=target, target_id=target_id, at=at, gone=False)
    return tables.departure


def stay(tables: Tables, at: int) -> bool:
    if tables.departure is None or tables.departure.gone:
        return False
    tables.departure = None
    for run in tables.runs.values():
        if run.status is Status.MOVED:
            run.status, run.ready_at, run.recoveries = Status.PENDING, AT_ONCE, 0
            tables.unowned[run.key] = run
    return True


def leave(tables: Tables, at: int) -> bool:
    if tables.departure is None or tables.departure.at != at:
        return False
    tables.departure = msgspec.structs.replace(tables.departure, gone=True)
    return True


# -- reading ---------------------------------------------------------------------------------------------


def pack(tables: Tables, keys: Sequence[RunKey]) -> list[Packed]:
    return [_pack(tables, run) for key in keys if (run := tables.runs.get(key)) is not None]


def _pack(tables: Tables, run: Run) -> Packed:
    arrival = tables.coming.get(run.key)
    status = arrival.status if arrival is not None and run.status is Status.ARRIVING else run.status
    row = msgspec.structs.replace(run.row(), status=status_elsewhere(status))
    return Packed(
        run=row,
        journals={number: list(rows) for number, rows in run.journal.items() if rows},
        inbox=items_elsewhere(list(run.inbox.values())),
        keys=sorted(run.dedup),
        relations=_relations(tables, run) if arrival is None else arrival.relations,
    )


def _relations(tables: Tables, run: Run) -> Relations:
    parent = tables.runs.get(run.parent.key) if run.parent is not None else None
    waits = [
        Waiting(
            type=kind,
            wanted=wait.wanted,
            held=sum(rules.is_held(item) and item.type == kind for item in run.inbox.values()),
            since=wait.since,
            shared=wait.shared,
            refused=sorted(wait.refused),
        )
        for kind, wait in sorted(run.waits.items())
    ]
    watchers = [
        (tables.runs[key].id, generation, location)
        for key, generation, location in tables.watches.get(run.key, ())
        if key in tables.runs
    ]
    link = None if parent is None or run.parent is None else (parent.id, run.parent.generation, run.parent.location)
    return Relations(parent=link, waits=waits, watchers=watchers)


def remainder(tables: Tables) -> Remainder:
    index = tables.events
    published = [
        MovedPublication(
            id=one.id,
            type=one.type,
            data=one.data,
            published_at=one.published_at,
            policy=one.policy,
            expires_at=one.expires_at,
            last_run=one.last_run,
            holder=None if one.holder is None else tables.runs[one.holder].id,
            spreading=one.spread_after is not None,
        )
        for one in index.publications.values()
    ]
    return Remainder(
        publications=published,
        publication_keys=sorted(index.keys.items()),
        dead_letters=list(tables.dead_letters.values()),
        replies=sorted((name, data, at) for name, (data, at) in tables.replies.items()),
        expired=dict(index.expired),
        runs=len(tables.runs),
        types=sorted({one.type for one in published} | {kind for run in tables.runs.values() for kind in run.waits}),
    )


# -- arriving --------------------------------------------------------------------------------------------


def receive(tables: Tables, source: str, runs: Sequence[Packed]) -> Receipt:
    tables.check_here()
    keys: dict[str, RunKey] = {}
    taken: list[str] = []
    for packed in runs:
        existing = tables.by_id.get(packed.run.id)
        if existing is not None:
            coming = tables.coming.get(existing.key)
            if coming is None or coming.source != source:
                taken.append(packed.run.id)
                continue
            if coming.brought == mark_of(packed.run):  # by an earlier call whose answer got lost
                keys[packed.run.id] = existing.key
                continue
            _forget(tables, existing)
        keys[packed.run.id] = _receive(tables, source, packed)
    return Receipt(keys=keys, taken=taken)


def _receive(tables: Tables, source: str, packed: Packed) -> RunKey:
    row = packed.run
    run = Run(
        key=tables.new_key(row.id),
        id=row.id,
        generation=row.generation,
        workflow=row.workflow,
        version=row.version,
        input_digest=row.input_digest,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        ready_at=AT_ONCE,
        owner=None,
        epoch=0,
        status=row.status if row.status.terminal else Status.ARRIVING,
        parent=None,
        journal={number: list(rows) for number, rows in packed.journals.items()},
        next_seq=row.next_seq,
        wake_at=row.wake_at,
        cancel_requested=row.cancel_requested,
        frontier=row.frontier,
        reason=row.reason,
        custom_status=row.custom_status,
        state=row.state,
        pruned=row.pruned,
        dedup=set(packed.keys),
    )
    tables.runs[run.key] = tables.by_id[run.id] = run
    for item in packed.inbox:
        _put(tables, run, item)
    tables.coming[run.key] = Coming(source, row.key, row.status, packed.relations, mark_of(row))
    return run.key


def _put(tables: Tables, run: Run, item: InboxItem) -> None:
    """Until `arrive` a copy of a published event has the number of the old store, below zero."""
    tables.last_item += 1
    stored = msgspec.structs.replace(
        item, id=tables.last_item, previous=run.last_item, publication=-abs(item.publication)
    )
    run.last_item = stored.id
    run.inbox[stored.id] = stored
    run.unread[item.type] += item.kind is ItemKind.EVENT
    tables.arrivals[stored.id] = run.key
    if item.expires_at is not None:
        tables.events.some_expire = True


def _forget(tables: Tables, run: Run) -> None:
    del tables.runs[run.key], tables.by_id[run.id], tables.coming[run.key]
    for item in list(run.inbox.values()):
        inbox.drop(tables, run, item)


def confirm(tables: Tables, source: str, marks: Mapping[str, str]) -> None:
    for run_id, mark in marks.items():
        run = tables.by_id.get(run_id)
        arrival = tables.coming.get(run.key) if run is not None else None
        if arrival is not None and arrival.source == source:
            arrival.mark = mark


def received(tables: Tables, source: str, after: RunKey, limit: int) -> list[Received]:
    found = [
        Received(key=key, id=tables.runs[key].id, mark=arrival.mark)
        for key, arrival in sorted(tables.coming.items(), key=lambda each: each[0])
        if key > after and arrival.source == source
    ]
    return found[:limit]


def withdraw(tables: Tables, source: str, run_ids: Sequence[str]) -> int:
    gone = 0
    for run_id in run_ids:
        run = tables.by_id.get(run_id)
        if run is not None and (arrival := tables.coming.get(run.key)) is not None and arrival.source == source:
            _forget(tables, run)
            gone += 1
    return gone


def arrive(tables: Tables, source: str, remainder: Remainder, at: int) -> bool:
    if source in tables.arrived:
        return False
    tables.check_here()
    coming = {key: arrival for key, arrival in tables.coming.items() if arrival.source == source}
    refusals.check_complete(len(coming), remainder.runs)
    numbers = _publish(tables, remainder, coming)
    for key, arrival in coming.items():
        _relate(tables, tables.runs[key], arrival.relations, numbers)
    for key, arrival in coming.items():
        run = tables.runs[key]
        del tables.coming[key]
        if run.status is Status.ARRIVING:
            run.status = arrival.status
            if run.status in CLAIMABLE:
                tables.unowned[key] = run
    _add_rest(tables, remainder)
    tables.arrived.add(source)
    return True


def _publish(tables: Tables, remainder: Remainder, coming: Mapping[RunKey, Coming]) -> Numbers:
    index = tables.events
    numbers = Numbers(index.last_publication)
    keys = [(arrival.old_key, key) for key, arrival in coming.items()]
    for one in remainder.publications:
        index.last_publication += 1
        numbers.add(one.id, index.last_publication)
        holder = tables.by_id.get(one.holder) if one.holder is not None else None
        index.publications[index.last_publication] = PublishedEvent(
            id=index.last_publication,
            type=one.type,
            data=one.data,
            published_at=one.published_at,
            policy=one.policy,
            expires_at=one.expires_at,
            last_run=newest_before(keys, one.last_run),
            holder=None if holder is None else holder.key,
            spread_after=0 if one.spreading else None,
        )
    return numbers


def _relate(tables: Tables, run: Run, relations: Relations, numbers: Numbers) -> None:
    if relations.parent is not None:
        parent_id, generation, location = relations.parent
        parent = tables.by_id.get(parent_id)
        if parent is not None:
            run.parent = ParentLink(parent.key, generation, location)
            tables.children.setdefault(parent.key, []).append(run)
    for item_id, item in list(run.inbox.items()):
        if item.publication < 0:
            number = numbers.of(-item.publication) or numbers.base + 1
            run.inbox[item_id] = msgspec.structs.replace(item, publication=number)
    # An ended run may be reopened, and remembers what it has had.
    waits = arriving_waits(relations.waits, numbers) if relations.waits or not run.status.terminal else ()
    for wait in waits:
        run.waits[wait.type] = stored = Wait(wait.wanted, wait.since, wait.shared, set(wait.refused))
        if wait.wanted:
            tables.events.waiting.setdefault(wait.type, {})[run.key] = stored
    for watcher_id, generation, location in relations.watchers:
        watcher = tables.by_id.get(watcher_id)
        if watcher is not None:
            tables.watches.setdefault(run.key, []).append((watcher.key, generation, location))


def _add_rest(tables: Tables, remainder: Remainder) -> None:
    index = tables.events
    index.keys = {**dict(remainder.publication_keys), **index.keys}
    index.expired += Counter(remainder.expired)
    tables.replies = {**{name: (data, at) for name, data, at in remainder.replies}, **tables.replies}
    for letter in remainder.dead_letters:
        tables.last_dead_letter += 1
        tables.dead_letters[tables.last_dead_letter] = msgspec.structs.replace(letter, id=tables.last_dead_letter)
