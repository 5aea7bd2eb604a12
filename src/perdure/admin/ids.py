"""Ids of runs whose starter chose none."""

from __future__ import annotations

import random
from typing import Final

#: Version and variant of a UUID of version 7 (RFC 9562).
_VERSION_7: Final = (7 << 76) | (0b10 << 62)
_MILLISECONDS: Final = (1 << 48) - 1


def new_run_id(rng: random.Random, now: int) -> str:
    """A UUID of version 7: the moment, down to the microsecond, then 62 bits of chance.

    Ids that begin with the moment sort by age, so new ones go to one end of the store's index. Drawn entirely by chance
    each would change a page of its own (docs/decisions/0105-generate-ids-as-uuid7.md).
    """
    milliseconds, rest = divmod(now, 1_000)
    number = (milliseconds & _MILLISECONDS) << 80 | _VERSION_7 | (rest * 4_096 // 1_000) << 64 | rng.getrandbits(62)
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
