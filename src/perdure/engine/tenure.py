"""Tenure: a worker judges by its own monotonic clock whether its runs are still its own.

Others take the runs of a worker that has not renewed its lease in time. A worker that cannot reach the store cannot be
told so, and must not wait to be told: for the last third of its lease it begins no new step, and at the end it lets go
of everything, before anybody else can have claimed its runs (FAULTS C6). What it had committed counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from perdure import limits
from perdure.engine.worker import Worker
from perdure.store.protocol import Store

logger = logging.getLogger("perdure.worker")


class Tenure:
    """Of one worker. `over` is called once, when its lease has ended; True: the store knows that it was taken away."""

    def __init__(self, store: Store, worker: Worker, lease_seconds: float, over: Callable[[bool], None]) -> None:
        self._store = store
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_doubtful = False
        self._has_ended = False

    def look(self) -> None:
        """Judge now, and from now on whenever there is a reason to. Also called when something may have changed."""
        self._stop_timer()
        if self._has_ended:
            return
        until = self._store.trusted_until(self._worker.id)
        if until is None:
            return  # a store that sees the death of processes itself
        left = until - time.monotonic()
        if left <= 0:
            self._has_ended = True
            # Not run out, or not only: this look came before the sweep's, which would have heard it from the store.
            self._over(until == 0.0)
            return
        doubtful = self._lease_seconds * limits.LEASE_DOUBTFUL_PART
        if left > doubtful:
            self._trust_again()
            wait = left - doubtful
        else:
            self._doubt(left)
            wait = min(left, limits.LEASE_LOOK_SECONDS)
        self._timer = self._loop.call_later(wait, self.look)

    def end(self) -> None:
        """The worker has come to its end in another way. May be called twice."""
        self._has_ended = True
        self._stop_timer()

    def _doubt(self, left: float) -> None:
        if not self._is_doubtful:
            self._is_doubtful = True
            self._worker.attempts.hold()
            logger.warning(
                "this worker could not renew its lease for %.1f s and begins no new step. If that does not change "
                "within %.1f s it lets go of its %d runs, which others take over.",
                self._lease_seconds - left, left, len(self._worker.residents),
            )  # fmt: skip

    def _trust_again(self) -> None:
        if self._is_doubtful:
            self._is_doubtful = False
            self._worker.attempts.go_on()
            logger.info("the lease of this worker is renewed again; steps go on")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
