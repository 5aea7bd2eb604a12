"""Random programs, their completions in random order, rebuilt from the journal after every single record."""

from __future__ import annotations

import pytest

from kernel.programs import explore
from support.frozen import PROGRAMS, changed
from support.processes import first_lines

SEEDS = 400
BATCH = 50


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_a_random_program_rebuilt_after_every_record_never_diverges(first: int) -> None:
    """CONFORMANCE R7, P4: no divergence, no step asked for twice, the same frontier.

    To repeat one: `explore(seed)`.
    """
    for seed in range(first, first + BATCH):
        try:
            assert not changed(PROGRAMS, [(seed, explore(seed))])
        except BaseException as error:
            error.add_note(f"program of seed {seed}")
            raise


def test_random_programs_have_the_same_journals_under_every_hash_seed() -> None:
    """CONFORMANCE P3, FAULTS O26: three processes with different PYTHONHASHSEEDs, one digest."""
    seeds = [{"PYTHONHASHSEED": seed} for seed in ("0", "1", "4711")]
    digests = first_lines("kernel.programs:digest_of_many", "1000", "1080", environments=seeds)
    assert digests[0]
    assert digests == [digests[0]] * 3
