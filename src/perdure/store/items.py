"""What has one fixed form: inbox items for the end of a child and a request to cancel, the names of answers.

Stores make them themselves when a run is terminated from outside; the engine makes the same ones in its turns
and reads both. Keeping the form here lets `terminate` work without a worker and without reading a payload.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from perdure.errors import CorruptRecord
from perdure.kernel.items import ChildNotice, child_item, read_child_item
from perdure.kernel.journal import Cancelled, Completed, Failed, Fault, Record, Row, from_row, to_row
from perdure.store.model import DeadLetter, InboxItem, ItemKind, Loaded, NewItem, ParentLink

#: Why an unread event of an ended run is a dead letter.
UNREAD: Final = "the run ended before reading it"
#: The `type` of every `ItemKind.CANCEL` item; its data is the reason, as plain text.
CANCEL_TYPE: Final = "cancel"
#: The `type` of every `ItemKind.RETRY_NOW` item; its data is a location, or nothing.
RETRY_NOW_TYPE: Final = "hurry"
#: The `type` of every `ItemKind.PAUSE` item; it has no data.
PAUSE_TYPE: Final = "pause"


def request_name(run_id: str, key: str) -> str:
    """Under which the answer to a request with a key is kept. No run id has a newline in it, so the names of one run
    are those that begin with `request_name(run_id, "")`: they go when it is deleted."""
    return f"{run_id}\n{key}"


def end_item(row: Row, run_id: str, generation: int, location: str, at: int) -> NewItem:
    """What a run that watches another hears, made of that one's last record."""
    common = (run_id, generation, location)
    try:
        body = from_row(row).body
    except CorruptRecord as error:  # the run that waits hears that, instead of being unable to commit
        fault = Fault("perdure.errors:CorruptRecord", error.message)
        return child_item(ChildNotice(*common, error=fault), at)
    match body:
        case Completed(value):
            notice = ChildNotice(*common, value=value)
        case Failed(failure):
            notice = ChildNotice(*common, error=failure)
        case Cancelled(reason):
            notice = ChildNotice(*common, cancelled=reason)
        case _:
            raise AssertionError(f"a run ended with {body.kind}")
    return child_item(notice, at)


def event_again(event: InboxItem | DeadLetter, at: int) -> NewItem:
    """An event that did not reach its run, to be sent or published once more: its time begins anew."""
    return NewItem(kind=ItemKind.EVENT, type=event.type, data=event.data, sent_at=at, policy=event.policy)


def unread_again(letter: DeadLetter) -> NewItem:
    """An event that was unread when its run ended, for the same run, as it was."""
    return NewItem(
        kind=ItemKind.EVENT, type=letter.type, data=letter.data, sent_at=letter.sent_at, policy=letter.policy
    )


def cancel_item(reason: str, at: int) -> NewItem:
    return NewItem(kind=ItemKind.CANCEL, type=CANCEL_TYPE, data=reason.encode(), sent_at=at)


def retry_now_item(location: str, at: int) -> NewItem:
    return NewItem(kind=ItemKind.RETRY_NOW, type=RETRY_NOW_TYPE, data=location.encode(), sent_at=at)


def pause_item(at: int) -> NewItem:
    return NewItem(kind=ItemKind.PAUSE, type=PAUSE_TYPE, data=b"", sent_at=at)


def notices_of(child_id: str, link: ParentLink | None, inbox: Iterable[InboxItem]) -> list[InboxItem]:
    """The items of a parent's inbox that tell of the end of this child."""
    found: list[InboxItem] = []
    for item in inbox:
        if item.kind is ItemKind.CHILD and link is not None:
            notice = read_child_item(item.data)
            if (notice.child_id, notice.generation, notice.location) == (child_id, link.generation, link.location):
                found.append(item)
    return found


def decode_journal(loaded: Loaded) -> list[Record]:
    """The records of a run; a record that is missing for another reason than pruning shows. Raises `CorruptRecord`."""
    records = [from_row(row) for row in loaded.rows]
    last, pruned = loaded.run.next_seq - 1, loaded.run.pruned
    if not pruned:
        for position, record in enumerate(records, 1):
            if record.seq != position:
                raise CorruptRecord(f"record {position} is missing: the journal goes on with record {record.seq}.")
    if len(records) + pruned != last:
        gone = f" and {pruned} were pruned" if pruned else ""
        raise CorruptRecord(f"the journal should end with record {last} but has {len(records)} records{gone}.")
    return records


# -- what `terminate` writes -----------------------------------------------------------------------------


def terminated_row(seq: int, at: int, reason: str) -> Row:
    """The last record of a run that was ended from outside."""
    return to_row(Record(seq, at, "", Cancelled(reason=reason, terminated=True)))


def terminated_notice(parent: ParentLink, run_id: str, reason: str, at: int) -> NewItem:
    """What the parent of a terminated run hears."""
    return child_item(ChildNotice(run_id, parent.generation, parent.location, cancelled=reason), at)


def orphaned_cancel(parent_id: str, reason: str, at: int) -> NewItem:
    """What the open children of a terminated run are asked."""
    text = f"its parent {parent_id!r} was terminated"
    return cancel_item(f"{text}: {reason}" if reason else text, at)
