"""perdure: ordinary async Python that survives crashes, restarts, deploys and moves between machines."""

import typing

from perdure.authoring.choices import options as options
from perdure.authoring.event import event as event
from perdure.authoring.options import FailedAttempt as FailedAttempt
from perdure.authoring.repeat import loop as loop
from perdure.authoring.repeat import traverse as traverse
from perdure.authoring.step import Step as Step
from perdure.authoring.step import StepContext as StepContext
from perdure.authoring.step import current_step as current_step
from perdure.authoring.step import step as step
from perdure.authoring.workflow import Invocation as Invocation
from perdure.authoring.workflow import Workflow as Workflow
from perdure.authoring.workflow import continue_as as continue_as
from perdure.authoring.workflow import start_child as start_child
from perdure.authoring.workflow import workflow as workflow
from perdure.errors import ActionRefused as ActionRefused
from perdure.errors import BadArgument as BadArgument
from perdure.errors import BadDefinition as BadDefinition
from perdure.errors import BranchCancelled as BranchCancelled
from perdure.errors import ChildCancelled as ChildCancelled
from perdure.errors import ChildFailed as ChildFailed
from perdure.errors import CompensationFailed as CompensationFailed
from perdure.errors import Critical as Critical
from perdure.errors import DeterminismWarning as DeterminismWarning
from perdure.errors import Diverged as Diverged
from perdure.errors import EngineNotOpen as EngineNotOpen
from perdure.errors import ExportUnusable as ExportUnusable
from perdure.errors import Forbidden as Forbidden
from perdure.errors import InboxFull as InboxFull
from perdure.errors import JoinFailed as JoinFailed
from perdure.errors import LetterNotFound as LetterNotFound
from perdure.errors import LostChange as LostChange
from perdure.errors import MatchFailed as MatchFailed
from perdure.errors import NameClash as NameClash
from perdure.errors import NoNextState as NoNextState
from perdure.errors import NonRetryable as NonRetryable
from perdure.errors import NoReply as NoReply
from perdure.errors import NotRewritable as NotRewritable
from perdure.errors import NotStorable as NotStorable
from perdure.errors import PerdureError as PerdureError
from perdure.errors import RaceFailed as RaceFailed
from perdure.errors import RetryAfter as RetryAfter
from perdure.errors import Rollback as Rollback
from perdure.errors import RunCancelled as RunCancelled
from perdure.errors import RunConflict as RunConflict
from perdure.errors import RunFailed as RunFailed
from perdure.errors import RunFinished as RunFinished
from perdure.errors import RunNotFound as RunNotFound
from perdure.errors import RunParked as RunParked
from perdure.errors import SagaClosed as SagaClosed
from perdure.errors import SchemaTooNew as SchemaTooNew
from perdure.errors import SchemaTooOld as SchemaTooOld
from perdure.errors import StepFailed as StepFailed
from perdure.errors import StepTimeout as StepTimeout
from perdure.errors import StoreLost as StoreLost
from perdure.errors import StoreUnavailable as StoreUnavailable
from perdure.errors import StoreUnusable as StoreUnusable
from perdure.errors import UnknownLocation as UnknownLocation
from perdure.errors import UnknownWorkflow as UnknownWorkflow
from perdure.errors import UnstorableType as UnstorableType
from perdure.kernel.branches import branch as branch
from perdure.kernel.codec import storable as storable
from perdure.kernel.compose import Err as Err
from perdure.kernel.compose import Ok as Ok
from perdure.kernel.compose import Winner as Winner
from perdure.kernel.compose import attempt as attempt
from perdure.kernel.compose import join as join
from perdure.kernel.compose import race as race
from perdure.kernel.iterations import Break as Break
from perdure.kernel.messages import publish as publish
from perdure.kernel.messages import receive_many as receive_many
from perdure.kernel.messages import reply as reply
from perdure.kernel.messages import wait_for_run as wait_for_run
from perdure.kernel.saga import Saga as Saga
from perdure.kernel.saga import saga as saga
from perdure.kernel.verbs import ChildHandle as ChildHandle
from perdure.kernel.verbs import cancel as cancel
from perdure.kernel.verbs import info as info
from perdure.kernel.verbs import log as log
from perdure.kernel.verbs import now as now
from perdure.kernel.verbs import patched as patched
from perdure.kernel.verbs import random as random
from perdure.kernel.verbs import receive as receive
from perdure.kernel.verbs import removed as removed
from perdure.kernel.verbs import send as send
from perdure.kernel.verbs import sleep as sleep
from perdure.kernel.verbs import sleep_until as sleep_until
from perdure.kernel.verbs import state as state
from perdure.kernel.verbs import status as status
from perdure.kernel.verbs import uuid4 as uuid4
from perdure.kernel.verbs import version as version

if typing.TYPE_CHECKING:
    from perdure.admin.check import Checked as Checked
    from perdure.admin.views import DeadLetterView as DeadLetterView
    from perdure.admin.views import HistoryEntry as HistoryEntry
    from perdure.admin.views import PublishedView as PublishedView
    from perdure.admin.views import RunView as RunView
    from perdure.admin.why import Reason as Reason
    from perdure.engine.engine import Engine as Engine
    from perdure.engine.engine import RunHandle as RunHandle
    from perdure.engine.engine import run as run
    from perdure.store.base import Status as Status

__version__ = "0.1.0"

#: What only a program that runs workflows needs, and where it is: loaded when it is first asked for, so that modules
#: which define workflows are imported quickly.
_LATER = {
    "Checked": "perdure.admin.check",
    "DeadLetterView": "perdure.admin.views",
    "HistoryEntry": "perdure.admin.views",
    "PublishedView": "perdure.admin.views",
    "RunView": "perdure.admin.views",
    "Reason": "perdure.admin.why",
    "Engine": "perdure.engine.engine",
    "RunHandle": "perdure.engine.engine",
    "run": "perdure.engine.engine",
    "Status": "perdure.store.base",
}

if not typing.TYPE_CHECKING:  # a checker would want a list, and one that saw the function would accept every name
    # Also what is loaded later: `from perdure import *` asks for each of these.
    __all__ = sorted(
        {name for name, value in globals().items() if name[0] != "_" and type(value) is not type(typing)} | set(_LATER)
    )

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_LATER[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
