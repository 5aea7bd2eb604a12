"""For pytest in a process of its own: puts the bug named by PERDURE_MUTATION into the code before any test runs."""

from __future__ import annotations

import os

from mutations.mutations import MUTATIONS, apply

apply(next(mutation for mutation in MUTATIONS if mutation.name == os.environ["PERDURE_MUTATION"]))
