"""The functions of the engine between which a crash could tell a difference, by the names that tests know them by.

A port of `perdure.testing.failpoints`, which wraps one of them for as long as a test wants; nothing here runs. Should a
function get another name, only this table changes.
"""

from __future__ import annotations

from typing import Any, Final

from perdure.admin.admin import Admin
from perdure.engine.attempts import StepRunner
from perdure.engine.attempts.calling import Calling
from perdure.engine.attempts.outcomes import Outcomes
from perdure.engine.attempts.serving import Serving
from perdure.engine.sweep import Sweep
from perdure.engine.worker.committing import Committing
from perdure.engine.worker.loading import Loading
from perdure.engine.worker.residents import Residents
from perdure.engine.worker.starting import Starting
from perdure.kernel.run import Run

MOMENTS: Final[dict[str, tuple[Any, str]]] = {
    "start is stored": (Starting, "create"),
    "start was stored": (Starting, "_created"),
    "claim was stored": (Sweep, "_load_claimed"),
    "replay": (Run, "replay"),
    "turns are stored": (Committing, "commit"),
    "turns were stored": (Committing, "_committed"),
    "step is admitted": (StepRunner, "start"),
    "step runs": (Calling, "begin"),
    "step returned": (Outcomes, "returned"),
    "outcome is queued": (Outcomes, "_note"),
    "result is taken": (Serving, "ended"),
    "deadline": (Residents, "mark_due"),
    "children were stored": (Loading, "begin_children"),
    "run ended": (Committing, "_end"),
    "generation was stored": (Committing, "_continue"),
    "send": (Admin, "send_json"),
    "cancel": (Admin, "cancel"),
}
