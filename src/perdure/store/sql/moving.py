"""All that the store has goes to another one, or comes from one: `store.move` says in which order.

While it departs, triggers refuse every change (`refuse_changes`), so that no other call need look, and processes that
know nothing of it are refused as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from perdure.kernel.journal import Row
from perdure.store import refusals
from perdure.store.model import InboxItem, RunKey, RunRow, Status
from perdure.store.move import (
    NO_RELATIONS,
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
    has_relations,
    items_elsewhere,
    mark_of,
    newest_before,
    status_elsewhere,
)
from perdure.store.sql.rows import Values, dead_letter, inbox_item, policy_text, read_policy, run_row, stored_item
from perdure.store.sql.session import Session

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Relations).decode

# -- leaving ---------------------------------------------------------------------------------------------


def identity(session: Session) -> str:
    found: str = session.value(session.sql["identity"])
    return found


def departure(session: Session) -> Departure | None:
    found = session.row(session.sql["departure"])
    if found is None:
        return None
    target, target_id, at, gone = found
    return Departure(target=target, target_id=target_id, at=at, gone=bool(gone))


def depart(session: Session, target: str, target_id: str, at: int) -> Departure:
    session.rows(session.sql["lock_everything"])
    begun = departure(session)
    if begun is not None:
        return begun
    session.execute(session.sql["add_departure"], (target, target_id, at))
    session.execute(session.sql["fence_runs"])
    session.execute(session.sql["forget_owners"])
    session.execute(session.sql["forget_workers"])
    session.execute(session.sql["refuse_changes"])
    return Departure(target=target, target_id=target_id, at=at, gone=False)


def stay(session: Session, at: int) -> bool:
    session.rows(session.sql["lock_everything"])
    if not session.change(session.sql["remove_departure"]):
        return False
    session.execute(session.sql["allow_changes"])
    session.execute(session.sql["unfence_runs"])
    return True


def leave(session: Session, at: int) -> bool:
    return session.change(session.sql["leave"], (at,)) > 0


# -- reading ---------------------------------------------------------------------------------------------


def pack(session: Session, keys: Sequence[RunKey]) -> list[Packed]:
    return session.snapshot(lambda: _Packing(session, keys).all())


class _Packing:
    """Runs by a few statements for all of them, each for one table."""

    def __init__(self, session: Session, keys: Sequence[RunKey]) -> None:
        self._session = session
        wanted = msgspec.json.encode(list(keys)).decode()
        self.runs = [run_row(values) for values in session.rows(session.sql["runs_by_keys"], (wanted,))]
        parents = [run.parent.key for run in self.runs if run.parent is not None]
        self._ids: dict[RunKey, str] = dict(self._rows("ids_of_keys", msgspec.json.encode(parents).decode()))
        self._records = self._grouped("packed_records", wanted, lambda values: values)
        self._items = self._grouped("packed_items", wanted, lambda values: values, key=stored_item_run)
        self._keys = self._grouped("packed_keys", wanted, lambda values: values[0])
        self._waits = self._grouped("packed_waits", wanted, lambda values: values)
        self._refusals = self._grouped("packed_refusals", wanted, lambda values: values)
        self._watchers = self._grouped("packed_watchers", wanted, lambda values: values)
        self._coming = {key: more for key, *more in self._rows("packed_coming", wanted)}

    def _rows(self, name: str, wanted: str) -> list[Values]:
        return self._session.rows(self._session.sql[name], (wanted,))

    def _grouped(
        self, name: str, wanted: str, make: Callable[[Values], Any], key: Callable[[Values], RunKey] | None = None
    ) -> Mapping[RunKey, list[Any]]:
        """By run. The first column is the run, unless `key` says otherwise: then it is left in its place."""
        found: dict[RunKey, list[Any]] = defaultdict(list)
        for values in self._rows(name, wanted):
            if key is None:
                found[values[0]].append(make(values[1:]))
            else:
                found[key(values)].append(make(values))
        return found

    def all(self) -> list[Packed]:
        return [self._packed(run) for run in self.runs]

    def _packed(self, run: RunRow) -> Packed:
        status, relations = self._coming.get(run.key, (None, None))
        if status is not None and run.status is Status.ARRIVING:
            run = msgspec.structs.replace(run, status=Status(status))
        journals: dict[int, list[Row]] = defaultdict(list)
        for generation, *row in self._records.get(run.key, ()):
            journals[generation].append(Row._make(row))
        items: list[InboxItem] = [inbox_item(values) for values in self._items.get(run.key, ())]
        known = None if status is None else NO_RELATIONS if relations is None else _decode(relations)
        return Packed(
            run=msgspec.structs.replace(run, status=status_elsewhere(run.status)),
            journals=journals,
            inbox=items_elsewhere(items),
            keys=self._keys.get(run.key, ()),
            relations=known if known is not None else self._relations(run),
        )

    def _relations(self, run: RunRow) -> Relations:
        parent = None
        if run.parent is not None and run.parent.key in self._ids:
            parent = (self._ids[run.parent.key], run.parent.generation, run.parent.location)
        refused: dict[str, list[int]] = defaultdict(list)
        for kind, publication in self._refusals.get(run.key, ()):
            refused[kind].append(publication)
        waits = [
            Waiting(type=kind, wanted=wanted, held=held, since=since, shared=shared, refused=refused.get(kind, ()))
            for kind, wanted, held, since, shared in self._waits.get(run.key, ())
        ]
        return Relations(parent=parent, waits=waits, watchers=self._watchers.get(run.key, ()))


def stored_item_run(values: Values) -> RunKey:
    return stored_item(values).run_key


def remainder(session: Session) -> Remainder:
    return session.snapshot(lambda: _remainder(session))


def _remainder(session: Session) -> Remainder:
    rows, sql = session.rows, session.sql
    published = [
        MovedPublication(
            id=number,
            type=kind,
            data=data,
            published_at=published_at,
            policy=read_policy(policy),
            expires_at=expires_at,
            last_run=last_run,
            holder=holder,
            spreading=spread_after is not None,
        )
        for number, kind, data, published_at, policy, expires_at, last_run, holder, spread_after in rows(
            sql["all_publications"]
        )
    ]
    return Remainder(
        publications=published,
        publication_keys=[(key, at) for key, at in rows(sql["all_publication_keys"])],
        dead_letters=[dead_letter(values) for values in rows(sql["dead_letters"], (None, 0, 2**63 - 1))],
        replies=[(name, data, at) for name, data, at in rows(sql["all_replies"])],
        expired=dict(rows(sql["expired_events"])),
        runs=session.value(sql["count_all"]),
        types=[kind for (kind,) in rows(sql["all_types"]) if kind],
    )


# -- arriving --------------------------------------------------------------------------------------------


def receive(session: Session, source: str, runs: Sequence[Packed]) -> Receipt:
    sql = session.sql
    here = {found.id: found for found in _find(session, [one.run.id for one in runs])}
    taken = [found.id for found in here.values() if found.source != source]
    keys: dict[str, RunKey] = {}
    new: list[Packed] = []
    for one in runs:
        found = here.get(one.run.id)
        if found is None:
            new.append(one)
        elif found.source == source and found.brought == mark_of(one.run):
            keys[one.run.id] = found.key  # by an earlier call whose answer got lost
        elif found.source == source:
            _forget(session, found.key)
            new.append(one)
    if not new:
        return Receipt(keys=keys, taken=taken)
    last_items = _add_runs(session, new)
    keys |= {found.id: found.key for found in _find(session, [one.run.id for one in new])}
    session.add_all(
        sql["receive_records"],
        [
            (keys[one.run.id], generation, *row)
            for one in new
            for generation, rows in sorted(one.journals.items())
            for row in rows
        ],
    )
    session.add_all(sql["receive_items"], [(keys[run_id], *item) for run_id, item in last_items])
    session.add_all(sql["receive_keys"], [(keys[one.run.id], key) for one in new for key in one.keys])
    session.add_all(
        sql["receive_coming"],
        [
            (
                keys[one.run.id], source, one.run.key, mark_of(one.run), str(one.run.status),
                _encode(one.relations) if has_relations(one.relations) else None,
            )
            for one in new
        ],
    )  # fmt: skip
    return Receipt(keys=keys, taken=taken)


class _Found(NamedTuple):
    """A run that has an id here. `source` and `brought` only while it is on its way."""

    id: str
    key: RunKey
    source: str | None
    brought: str | None


def _find(session: Session, run_ids: Sequence[str]) -> list[_Found]:
    wanted = msgspec.json.encode(list(run_ids)).decode()
    return [_Found._make(found) for found in session.rows(session.sql["keys_of_ids"], (wanted,))]


def _add_runs(session: Session, new: Sequence[Packed]) -> list[tuple[str, Values]]:
    """The rows of `runs`; returns those of `inbox`, with the ids of their runs."""
    following: int | None = session.value(session.sql["first_item"])
    items: list[tuple[str, Values]] = []
    rows: list[Values] = []
    for one in new:
        run, last_item = one.run, 0
        number = 1 if following is None else following
        for item in one.inbox:
            items.append((run.id, _item_values(item, number, last_item)))
            last_item, number = number, number + 1
        following = None if following is None else number
        status = run.status if run.status.terminal else Status.ARRIVING
        rows.append((
            run.id, run.generation, run.workflow, run.version, str(status), run.wake_at, run.next_seq, run.created_at,
            run.updated_at, run.finished_at, run.input_digest, int(run.cancel_requested), run.frontier, run.reason,
            run.custom_status, run.state, run.pruned, last_item,
        ))  # fmt: skip
    session.add_all(session.sql["receive_runs"], rows)
    return items


def _item_values(item: InboxItem, number: int, previous: int) -> Values:
    """Until `arrive` a copy of a published event has the number of the old store, below zero."""
    held = int(bool(item.publication) and item.policy.single)
    return (
        number, str(item.kind), item.type, item.data, item.sent_at, previous, policy_text(item.policy), item.expires_at,
        -abs(item.publication), held, item.request,
    )  # fmt: skip


def _forget(session: Session, key: RunKey) -> None:
    for name in ("remove_coming_run", "delete_journal", "delete_inbox", "delete_keys", "forget_coming"):
        session.execute(session.sql[name], (key,))


def confirm(session: Session, source: str, marks: Mapping[str, str]) -> None:
    for found in _find(session, list(marks)):
        if found.source == source:
            session.execute(session.sql["confirm"], (marks[found.id], found.key, source))


def received(session: Session, source: str, after: RunKey, limit: int) -> list[Received]:
    return [
        Received(key=key, id=run_id, mark=mark)
        for key, run_id, mark in session.rows(session.sql["received"], (source, after, limit))
    ]


def withdraw(session: Session, source: str, run_ids: Sequence[str]) -> int:
    keys = [found.key for found in _find(session, run_ids) if found.source == source]
    for key in keys:
        _forget(session, key)
    return len(keys)


def has_arrived(session: Session, source: str) -> bool:
    return session.row(session.sql["arrived"], (source,)) is not None


def arrive(session: Session, source: str, remainder: Remainder, at: int) -> bool:
    if has_arrived(session, source):
        return False
    refusals.check_complete(session.value(session.sql["count_coming"], (source,)), remainder.runs)
    for kind in remainder.types:
        session.lock_type(kind)
    _Arriving(session, source, remainder).settle()
    session.execute(session.sql["arrive_runs"], (source,))
    session.execute(session.sql["forget_source"], (source,))
    session.execute(session.sql["add_arrived"], (source, at))
    return True


class _Arriving:
    """What refers to other things, by what those are called here."""

    def __init__(self, session: Session, source: str, remainder: Remainder) -> None:
        self._session = session
        self._source = source
        self._remainder = remainder
        #: Key, id, old key, relations, whether it is open.
        self._runs = [
            (key, run_id, old_key, NO_RELATIONS if relations is None else _decode(relations), bool(is_open))
            for key, run_id, old_key, relations, is_open in session.rows(session.sql["coming_with_more"], (source,))
        ]
        self._numbers = Numbers(session.value(session.sql["last_publication"]))

    def settle(self) -> None:
        self._publish()
        self._relate()
        self._number_copies()
        self._add_rest()

    def _publish(self) -> None:
        ids = {run_id: key for key, run_id, *_ in self._runs}
        keys = [(old_key, key) for key, _, old_key, _, is_open in self._runs if is_open]
        for one in self._remainder.publications:
            policy = one.policy
            described = (one.type, int(policy.single), one.data, one.published_at, policy_text(policy), policy.delivery)
            holder = None if one.holder is None else ids.get(one.holder)
            placed = (one.expires_at, newest_before(keys, one.last_run), holder, 0 if one.spreading else None)
            number: int = self._session.rows(self._session.sql["receive_publication"], (*described, *placed))[0][0]
            self._numbers.add(one.id, number)

    def _relate(self) -> None:
        named = {one[3].parent[0] for one in self._runs if one[3].parent is not None}
        named |= {watcher for one in self._runs for watcher, _, _ in one[3].watchers}
        keys = {found.id: found.key for found in _find(self._session, sorted(named))}
        waits: list[Values] = []
        refusals: list[Values] = []
        parents: list[Values] = []
        watches: list[Values] = []
        for key, _, _, relations, is_open in self._runs:
            # An ended run may be reopened, and remembers what it has had.
            if is_open or relations.waits:
                for wait in arriving_waits(relations.waits, self._numbers):
                    position = (wait.wanted, wait.held, wait.since, wait.shared)
                    waits.append((key, wait.type, *position, int(bool(wait.refused))))
                    refusals += [(key, wait.type, publication) for publication in wait.refused]
            if relations.parent is not None and relations.parent[0] in keys:
                parent_id, generation, location = relations.parent
                parents.append((keys[parent_id], generation, location, key))
            watches += [
                (key, keys[watcher], generation, location)
                for watcher, generation, location in relations.watchers
                if watcher in keys
            ]
        self._add("arrive_waits", waits)
        self._add("arrive_refusals", refusals)
        self._add("arrive_parents", parents)
        self._add("arrive_watches", watches)
        for target in {target for target, *_ in watches}:
            self._session.execute(self._session.sql["mark_watched"], (target,))

    def _number_copies(self) -> None:
        for run_key, item_id, publication in self._session.rows(self._session.sql["copies_coming"], (self._source,)):
            # One that nobody else can get any more has no number here, and need only be known to be a copy.
            number = self._numbers.of(-publication) or self._numbers.base + 1
            self._session.execute(self._session.sql["set_publication"], (number, item_id, run_key))

    def _add_rest(self) -> None:
        session, sql, rest = self._session, self._session.sql, self._remainder
        session.executemany(sql["receive_publication_key"], rest.publication_keys)
        session.executemany(sql["add_reply"], rest.replies)
        session.executemany(sql["receive_expired"], list(rest.expired.items()))
        dead = [
            (one.type, one.data, policy_text(one.policy), one.target, str(one.target_status), one.sent_at, one.died_at,
             one.reason)
            for one in rest.dead_letters
        ]  # fmt: skip
        session.executemany(sql["receive_dead_letter"], dead)

    def _add(self, name: str, rows: Sequence[Values]) -> None:
        self._session.add_all(self._session.sql[name], rows)
