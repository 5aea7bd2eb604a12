"""Events that did not reach their run: kept until somebody replays or removes them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.store import items, refusals
from perdure.store.memory import events, inbox
from perdure.store.memory.tables import Run, Tables
from perdure.store.model import DeadLetter, InboxItem, Published
from perdure.store.turn import DeadItem


def add(tables: Tables, run: Run, item: InboxItem, reason: str, at: int) -> None:
    tables.last_dead_letter += 1
    tables.dead_letters[tables.last_dead_letter] = DeadLetter(
        id=tables.last_dead_letter,
        type=item.type,
        data=item.data,
        policy=item.policy,
        target=run.id,
        target_status=run.status,
        sent_at=item.sent_at,
        died_at=at,
        reason=reason,
    )


def take_dead(tables: Tables, run: Run, dead: Sequence[DeadItem], at: int) -> set[str]:
    """Events that the run cannot take become dead letters. Returns their types."""
    kinds: set[str] = set()
    for item_id, reason in dead:
        item = run.inbox[item_id]
        events.taken(tables, item)
        inbox.drop(tables, run, item)
        add(tables, run, item, reason, at)
        kinds.add(item.type)
    return kinds


def restore_unread(tables: Tables, run: Run, ended_at: int | None) -> None:
    """The end of a run is taken back: what it had not read then is in its inbox again."""
    for letter in list(tables.dead_letters.values()):
        if (letter.target, letter.died_at, letter.reason) == (run.id, ended_at, items.UNREAD):
            del tables.dead_letters[letter.id]
            inbox.put(tables, run, items.unread_again(letter))


# -- people ----------------------------------------------------------------------------------------------


def replay(tables: Tables, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
    letter = tables.dead_letters.get(letter_id)
    if letter is None:
        raise refusals.dead_letter_not_found(letter_id)
    item = items.event_again(letter, at)
    if run_id is None:
        published = events.publish(tables, item, pending_max)
    else:
        appended = inbox.append(tables, run_id, item, pending_max)
        published = Published(id=None, deliveries=[appended.delivery] if appended.delivery is not None else [])
    del tables.dead_letters[letter_id]
    return published


def remove(tables: Tables, letter_ids: Sequence[int]) -> int:
    if any(letter_id in tables.dead_letters for letter_id in letter_ids):
        tables.check_here()
    return sum(tables.dead_letters.pop(letter_id, None) is not None for letter_id in set(letter_ids))
