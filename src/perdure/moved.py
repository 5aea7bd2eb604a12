"""Names that were importable from `perdure` and have a module of their own now: asking here says where."""

from __future__ import annotations

import sys
from types import FrameType

_MOVED = {
    "perdure.admin": """
        Checked DeadLetterView HistoryEntry PublishedView Reason
    """,
    "perdure.errors": """
        ActionRefused BadArgument BadDefinition BranchCancelled CompensationFailed DeadLetterNotFound
        DeterminismWarning Diverged EngineNotOpen ExportUnusable Forbidden InboxFull LostChange MatchFailed
        NameClash NoNextState NoReply NotRewritable NotStorable RunConflict RunParked SagaClosed SchemaTooNew
        SchemaTooOld StoreLost StoreUnavailable StoreUnusable UnknownLocation UnknownWorkflow UnstorableType
    """,
    "perdure.types": """
        FailedAttempt Invocation RunView Saga Status Step StepContext Workflow
    """,
}
#: Where each is; one has another name there.
HOMES = {name: module for module, names in _MOVED.items() for name in names.split()}
HOMES["LetterNotFound"] = "perdure.errors, as DeadLetterNotFound,"


def refusal(name: str) -> Exception:
    """What `perdure` raises for a name that it does not have. Python's own words for one that it never had."""
    home = HOMES.get(name)
    if home is None:
        return AttributeError(f"module 'perdure' has no attribute {name!r}")
    text = f"cannot import name {name!r} from 'perdure': it is in {home} now"
    return ImportError(text, name="perdure") if _is_import(sys._getframe(2)) else AttributeError(text)


def _is_import(frame: FrameType) -> bool:
    """Whether the frame is at `from ... import ...`. There Python makes an ImportError of an AttributeError, with a
    text of its own; everywhere else (`hasattr`) only an AttributeError will do."""
    import opcode

    return opcode.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"
