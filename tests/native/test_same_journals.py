"""With and without the twins in C: the same journals, the same traces of whole simulated worlds."""

from __future__ import annotations

import pytest

from perdure import native
from support.processes import first_lines

pytestmark = pytest.mark.skipif(not native.IN_USE, reason="the twins are not in use here")


@pytest.mark.parametrize(
    ("target", "first", "last"),
    [("kernel.programs:digest_of_many", 3000, 3100), ("sim.test_simulator:digest_of_worlds", 40_000, 40_060)],
)
def test_journals_do_not_depend_on_the_twins(target: str, first: int, last: int) -> None:
    """Law 9, for the two ways to do the same: random programs of the kernel, and engines with their faults."""
    modes = [{"PERDURE_NATIVE": mode} for mode in ("on", "off")]
    digests = first_lines(target, str(first), str(last), environments=modes)
    assert digests[0]
    assert digests[0] == digests[1]
