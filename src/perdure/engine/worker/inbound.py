"""What the store tells of: items for runs, and runs that others ended or paused.

It reaches the run it is for, if that is in memory here; otherwise the sweep, which reads the store.
"""

from __future__ import annotations

from perdure import limits
from perdure.engine.worker.leaving import Leaving
from perdure.engine.worker.requests import SweepRequests
from perdure.engine.worker.residents import Residents
from perdure.store.model import Delivery, ItemKind, Release, RunKey


class Inbound:
    def __init__(self, worker_id: str, residents: Residents, leaving: Leaving, requests: SweepRequests) -> None:
        self._worker_id = worker_id
        self._residents = residents
        self._leaving = leaving
        self._requests = requests

    def deliver(self, delivery: Delivery) -> None:
        """An item arrived for some run."""
        is_ours = delivery.owner == self._worker_id
        if delivery.item.kind is ItemKind.PAUSE:
            if is_ours:
                resident = self._residents.find(delivery.key)
                self.ended(delivery.key)
                if resident is not None:  # in case it was unpaused and is ours again, and this came late
                    self._requests.adopt_run(resident.id)
        elif is_ours:
            if not self._residents.deliver(delivery.key, delivery.item):
                self._requests.reread_inbox(delivery.key)
        elif delivery.owner is None:
            self._requests.claim()

    def ended(self, key: RunKey) -> None:
        """Another process ended or paused a run of ours: its attempts are cancelled, and it leaves memory."""
        resident = self._residents.find(key)
        if resident is not None:
            self._leaving.drop(resident)
        self._leaving.give_back(Release(key=key, epoch=0, seen_item=limits.NEVER, ready_at=limits.NEVER))
