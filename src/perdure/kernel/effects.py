"""Effects: what a turn of one run changes about others, in the same commit.

Each effect is part of a record of the run that asked for it. The record says what came of the effect, which only the
store knows: so an entry carries one row for success, and the effect one row for each reason to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from perdure.kernel.items import NewItem
from perdure.kernel.journal import Row

RunKey: TypeAlias = int
"""A store's own number for a run. Never reused: a deleted and recreated id gets another key."""


class ParentLink(msgspec.Struct, frozen=True, gc=False):
    """Who hears about the end of a child: absent for independent and detached runs."""

    key: RunKey
    generation: int
    location: str


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """A run to be created. `started` is its first record, with seq 1."""

    id: str
    workflow: str
    version: str
    input_digest: bytes
    started: Row
    created_at: int
    parent: ParentLink | None = None
    #: The worker that takes it at once (epoch 1, nothing else to claim), or None: anyone may claim it.
    owner: str | None = None


class NextGeneration(msgspec.Struct, frozen=True, gc=False):
    """`continue_as`: the run goes on under the same id with a fresh journal. Its inbox stays."""

    workflow: str
    version: str
    started: Row


class Effect(msgspec.Struct, frozen=True, gc=False):
    """What a turn does to others, and whom that concerns: a store with several writers locks that beforehand."""

    @property
    def run_id(self) -> str | None:
        """The run that it changes, if its id is known."""
        return None

    @property
    def event_type(self) -> str | None:
        """The type of events that it publishes."""
        return None

    @property
    def child(self) -> NewRun | None:
        """The run that it creates."""
        return None


class Send(Effect, frozen=True, gc=False):
    """Put an item into another run's inbox, found by its id.

    The entry's row is written if the target took it; otherwise the row under the reason is:
    `not_found`, `finished` or `full`.
    """

    target: str
    item: NewItem
    refused: Mapping[str, Row]

    @property
    def run_id(self) -> str:
        return self.target


class Spawn(Effect, frozen=True, gc=False):
    """Create a child run. If its id is taken, the row under `conflict` is written instead."""

    new: NewRun
    refused: Mapping[str, Row]

    @property
    def child(self) -> NewRun:
        return self.new


class Publish(Effect, frozen=True, gc=False):
    """Publish an event; see `Store.publish`. Never refused."""

    item: NewItem
    refused: Mapping[str, Row] = {}

    @property
    def event_type(self) -> str:
        return self.item.type


class Reply(Effect, frozen=True, gc=False):
    """Store the answer to a request, where the caller finds it. A second answer to one request is ignored."""

    request: str
    data: bytes
    at: int
    refused: Mapping[str, Row] = {}


class Watch(Effect, frozen=True, gc=False):
    """Tell this run, at this location, about the end of another: now, if it has ended. May be `not_found`."""

    target: str
    location: str
    refused: Mapping[str, Row]

    @property
    def run_id(self) -> str:
        return self.target


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record of a turn, with the effect that is part of it, if any."""

    row: Row
    effect: Send | Spawn | Publish | Reply | Watch | None = None
