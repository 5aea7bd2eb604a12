"""Capacity: never more attempts at once than the caps of the worker and of each step allow.

The rest waits, first come, first served: those that a step's own cap holds among themselves, all others in one line.
An attempt leaves once, when its code has ended or has been given up; the next one gets its place at once.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from perdure.engine.attempts.attempt import Attempt


class Capacity:
    """Places for attempts. `admitted` hears of each that has got one, `held` of each that has to wait for it."""

    def __init__(self, steps_max: int, admitted: Callable[[Attempt], None], held: Callable[[Attempt], None]) -> None:
        #: How many may run at once; none while it `is_held`.
        self.steps_max = steps_max
        self._steps_max_set = steps_max
        self.is_held = False
        self.running = 0
        #: Whether anything may still begin. False: the engine closes, or is as good as gone.
        self.accepting = True
        self._admitted = admitted
        self._held = held
        self._running_by_step: dict[str, int] = {}
        self._waiting: deque[Attempt] = deque()
        self._waiting_by_step: dict[str, deque[Attempt]] = {}

    def admit(self, attempt: Attempt) -> None:
        """Give it a place, or let it wait for one."""
        if self.running >= self.steps_max:
            self._hold(attempt, "lease" if self.is_held else "steps_max")
            self._waiting.append(attempt)
            return
        spec = attempt.operation.spec
        if spec.concurrency is not None:
            if self._running_by_step.get(spec.name, 0) >= spec.concurrency:
                self._hold(attempt, "concurrency")
                self._waiting_by_step.setdefault(spec.name, deque()).append(attempt)
                return
            self._running_by_step[spec.name] = self._running_by_step.get(spec.name, 0) + 1
        attempt.held_by = ""
        attempt.stop_timer()
        self.running += 1
        self._admitted(attempt)

    def _hold(self, attempt: Attempt, limit: str) -> None:
        attempt.held_by = limit
        if not attempt.operation.spec.is_bare:
            self._held(attempt)

    def leave(self, attempt: Attempt) -> None:
        """Its place is free for others. Safe to repeat."""
        attempt.stop_timer()
        if attempt.has_left:
            return
        attempt.has_left = True
        self.running -= 1
        spec = attempt.operation.spec
        if spec.concurrency is not None:
            self._running_by_step[spec.name] -= 1
            held = self._waiting_by_step.get(spec.name)
            while held and held[0].unwanted:
                held.popleft()
            if held:
                self._waiting.appendleft(held.popleft())
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self.running < self.steps_max and self.accepting:
            following = self._waiting.popleft()
            if not following.unwanted:
                self.admit(following)

    def hold(self) -> None:
        """Admit nothing for now. Safe to repeat."""
        self.is_held = True
        self.steps_max = 0

    def go_on(self) -> None:
        """Admit again, what has waited first. Safe to repeat."""
        if self.is_held:
            self.is_held = False
            self.steps_max = self._steps_max_set
            self._admit_waiting()

    def close(self) -> None:
        """Admit nothing more, and forget what waits."""
        self.accepting = False
        for attempt in itertools.chain(self._waiting, *self._waiting_by_step.values()):
            attempt.stop_timer()
        self._waiting.clear()
        self._waiting_by_step.clear()
