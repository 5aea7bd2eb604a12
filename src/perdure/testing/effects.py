"""`Effects`: a list of what a program did to the outside, that knows which step did it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from perdure.authoring.step import step_context
from perdure.kernel.sites import caller_site


class Effect(NamedTuple):
    """One thing done. `location`: of the step that did it; None: done outside any step."""

    label: str
    location: str | None
    site: str


class Effects:
    """Give it to the code under test, which adds a label for each thing it does.

    >>> sent = Effects()
    >>> engine.mock(send_mail, call=lambda to: sent.add(f"mail to {to}"))
    """

    def __init__(self) -> None:
        self.all: list[Effect] = []

    def add(self, label: str) -> None:
        context = step_context.get(None)
        self.all.append(Effect(label, None if context is None else context.context.location, caller_site(0)))

    def counts(self) -> Counter[str]:
        return Counter(effect.label for effect in self.all)

    def clear(self) -> None:
        self.all.clear()

    def __repr__(self) -> str:
        return f"<Effects {dict(self.counts())}>"


#: Where a test keeps what was done: `Effects`, a list or Counter of labels, or a function that returns one.
Recorder: TypeAlias = "Effects | list[Any] | Counter[Any] | Callable[[], Iterable[Any]]"


class Tally:
    """Counts what was done since the last `begin`, whatever kind of recorder a test uses."""

    def __init__(self, recorder: Recorder | None) -> None:
        self.recorder = recorder
        self._before: Counter[str] = Counter()

    def begin(self) -> None:
        if isinstance(self.recorder, (Effects, list, Counter)):
            self.recorder.clear()
        else:
            self._before = self._now()

    def counts(self) -> Counter[str]:
        return self._now() - self._before

    def outside(self) -> dict[str, str]:
        """Labels of effects that are known to be done outside steps, with where."""
        if not isinstance(self.recorder, Effects):
            return {}
        return {effect.label: effect.site for effect in self.recorder.all if effect.location is None}

    def _now(self) -> Counter[str]:
        match self.recorder:
            case None:
                return Counter()
            case Effects():
                return self.recorder.counts()
            case Counter():
                return Counter({str(label): count for label, count in self.recorder.items()})
            case list():
                return Counter(str(label) for label in self.recorder)
            case _:
                found = self.recorder()
                return Counter(found) if isinstance(found, Counter) else Counter(str(label) for label in found)
