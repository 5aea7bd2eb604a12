"""Random values that are the same on every replay: `random`, `uuid4`."""

from __future__ import annotations

from uuid import UUID

from perdure.kernel.randomness import randomness_of
from perdure.kernel.verbs.current import current_run


def random() -> float:
    """A number in [0, 1), the same on every replay."""
    return randomness_of(current_run("random")).random()


def uuid4() -> UUID:
    """A random UUID, the same on every replay."""
    return randomness_of(current_run("uuid4")).uuid4()
