"""What can arrive in a run's inbox, on its way there and once it is there.

An item is an event, a request to cancel, the end of a child, or a word of a person about a step. Items of one run have
ids that grow in the order of arrival.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.kernel.journal import ABSENT, Fault


class ItemKind(StrEnum):
    """What can arrive in a run's inbox."""

    EVENT = "event"
    CANCEL = "cancel"
    CHILD = "child"
    #: Somebody wants the next attempt of a step now. Its data is the step's location, or nothing for all of them.
    RETRY_NOW = "hurry"
    #: Only for the worker that holds a run which was paused: it is to let go. No turn ever takes it.
    PAUSE = "pause"


class NewItem(msgspec.Struct, frozen=True, gc=False):
    """Something on its way to a run's inbox. `dedup`: a second item with the same key is accepted and ignored."""

    kind: ItemKind
    type: str
    data: bytes
    sent_at: int
    dedup: str | None = None
    #: How an event travels: see `EventPolicy`.
    policy: EventPolicy = DEFAULT_POLICY
    #: A caller waits for the reply stored under this name.
    request: str = ""

    @property
    def expires_at(self) -> int | None:
        return None if self.policy.expires is None else self.sent_at + self.policy.expires


class InboxItem(msgspec.Struct, frozen=True, gc=False):
    """Something in a run's inbox. Ids grow in the order of arrival within a run.

    `previous` is the id of the item that arrived before it in the same inbox (0: none). Items may reach a worker by
    several ways; this is how it knows that one is missing, and does not let a later one overtake it.
    """

    id: int
    kind: ItemKind
    type: str
    data: bytes
    sent_at: int
    previous: int = 0
    policy: EventPolicy = DEFAULT_POLICY
    #: From this moment on no run gets it.
    expires_at: int | None = None
    #: The published event that this is a copy of (or, with `policy.single`, that is held here); 0: sent to this run.
    publication: int = 0
    request: str = ""


class DeadItem(NamedTuple):
    """An inbox item that its run cannot take, and why: it becomes a dead letter."""

    id: int
    reason: str


# -- the end of a child -----------------------------------------------------------------------------------

#: The `type` of every `ItemKind.CHILD` item; its data is a `ChildNotice`.
CHILD_TYPE: Final = "child"


class ChildNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a parent hears about the end of its child. Exactly one of the last three is set.

    `generation` is the parent's when it started the child. After `continue_as` the new generation does not wait for
    that child any more, so a notice of another generation is dropped.
    """

    child_id: str
    generation: int
    location: str
    value: Raw = ABSENT
    error: Fault | None = None
    cancelled: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ChildNotice).decode


def child_item(notice: ChildNotice, at: int) -> NewItem:
    return NewItem(ItemKind.CHILD, CHILD_TYPE, _encode(notice), at)


def read_child_item(data: bytes) -> ChildNotice:
    return _decode(data)
