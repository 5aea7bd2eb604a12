"""Events that did not reach their run: kept until somebody replays or removes them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.store import items, refusals, rules
from perdure.store.model import InboxItem, Published, RunKey
from perdure.store.sql.events import publish
from perdure.store.sql.inbox import existing_receiver, find_receiver_by_key, offer, put
from perdure.store.sql.rows import dead_letter, inbox_item, policy_text
from perdure.store.sql.session import Session
from perdure.store.turn import DeadItem


def add(session: Session, key: RunKey, item: InboxItem, reason: str, at: int) -> None:
    described = (item.type, item.data, policy_text(item.policy), item.sent_at, at, reason)
    session.execute(session.sql["add_dead_letter"], (*described, key))


def take_dead(session: Session, key: RunKey, dead: Sequence[DeadItem], at: int) -> set[str]:
    """Events that the run cannot take become dead letters. Returns their types."""
    kinds: set[str] = set()
    for item_id, reason in dead:
        item = inbox_item(session.rows(session.sql["item"], (item_id, key))[0])
        if rules.is_held(item):
            session.execute(session.sql["remove_publication"], (item.publication,))
        session.execute(session.sql["take_item"], (item_id, key))
        add(session, key, item, reason, at)
        kinds.add(item.type)
    return kinds


def restore_unread(session: Session, key: RunKey, ended_at: int | None) -> None:
    """The end of a run is taken back: what it had not read then is in its inbox again."""
    found = session.rows(session.sql["dead_letters_of_end"], (key, ended_at, items.UNREAD))
    for letter in map(dead_letter, found):
        session.execute(session.sql["remove_dead_letter"], (letter.id,))
        receiver = find_receiver_by_key(session, key)
        if receiver is not None:
            put(session, receiver, items.unread_again(letter))


# -- people ----------------------------------------------------------------------------------------------


def replay(session: Session, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
    found = session.row(session.sql["dead_letter"], (letter_id,))
    if found is None:
        raise refusals.dead_letter_not_found(letter_id)
    item = items.event_again(dead_letter(found), at)
    if run_id is None:
        session.execute(session.sql["remove_dead_letter"], (letter_id,))
        return publish(session, item, pending_max)
    receiver = existing_receiver(session, run_id)
    outcome = offer(session, receiver, item, pending_max)
    if isinstance(outcome, str):
        raise refusals.refused(outcome, run_id, receiver.status, item.type, pending_max)
    session.execute(session.sql["remove_dead_letter"], (letter_id,))
    return Published(id=None, deliveries=[outcome])


def remove(session: Session, letter_ids: Sequence[int]) -> int:
    removed = 0
    for letter_id in letter_ids:
        removed += session.change(session.sql["remove_dead_letter"], (letter_id,))
    return removed
