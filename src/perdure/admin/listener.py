"""Who hears at once of what people changed: an engine in the same process, if there is one.

Every change is in the store when its call returns, and any worker finds it there at its next sweep. A listener only
makes that sooner, and knows what no store does: whether the code of a step has begun.
"""

from __future__ import annotations

from perdure.store.model import Delivery, RunRow


class Listener:
    """Nobody is there: what `Admin(store)` has. An engine has one of its own (`engine.parts`)."""

    def check(self) -> None:
        """Raise if calls are not accepted now, or not from here."""

    def deliver(self, delivery: Delivery) -> None:
        """An item arrived for some run."""

    def spread(self) -> bool:
        """Whether somebody here brings a published event to the rest of the runs that get it."""
        return False

    def ended(self, row: RunRow) -> None:
        """A run was ended from outside."""

    def look(self) -> None:
        """There is something new in the store."""

    def place_of(self, row: RunRow, location: str) -> str | None:
        """What keeps a step of a run from beginning: see `why`. None: nobody here knows."""
        return None
