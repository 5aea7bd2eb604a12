"""perdure: ordinary async Python that survives crashes, restarts, deploys and moves between machines.

Here is what workflow code and the program that runs it use every day. Elsewhere:
    perdure.errors    every error there is, with its code
    perdure.types     what annotations name: `Workflow`, `RunView`, `Status`...
    perdure.admin     what people do with runs: `engine.admin`, or `Admin(store)`
    perdure.testing   for tests
"""

import typing

from perdure.authoring.choices import options as options
from perdure.authoring.event import event as event
from perdure.authoring.repeat import loop as loop
from perdure.authoring.repeat import traverse as traverse
from perdure.authoring.step import current_step as current_step
from perdure.authoring.step import step as step
from perdure.authoring.workflow import continue_as as continue_as
from perdure.authoring.workflow import start_child as start_child
from perdure.authoring.workflow import workflow as workflow
from perdure.errors import ChildCancelled as ChildCancelled
from perdure.errors import ChildFailed as ChildFailed
from perdure.errors import Critical as Critical
from perdure.errors import JoinFailed as JoinFailed
from perdure.errors import NonRetryable as NonRetryable
from perdure.errors import PerdureError as PerdureError
from perdure.errors import RaceFailed as RaceFailed
from perdure.errors import RetryAfter as RetryAfter
from perdure.errors import Rollback as Rollback
from perdure.errors import RunCancelled as RunCancelled
from perdure.errors import RunFailed as RunFailed
from perdure.errors import RunFinished as RunFinished
from perdure.errors import RunNotFound as RunNotFound
from perdure.errors import StepFailed as StepFailed
from perdure.errors import StepTimeout as StepTimeout
from perdure.kernel.iterations import Break as Break
from perdure.kernel.values import storable as storable
from perdure.kernel.verbs.branch import branch as branch
from perdure.kernel.verbs.change import patched as patched
from perdure.kernel.verbs.change import removed as removed
from perdure.kernel.verbs.change import version as version
from perdure.kernel.verbs.clock import now as now
from perdure.kernel.verbs.clock import sleep as sleep
from perdure.kernel.verbs.clock import sleep_until as sleep_until
from perdure.kernel.verbs.compose import Err as Err
from perdure.kernel.verbs.compose import Ok as Ok
from perdure.kernel.verbs.compose import Winner as Winner
from perdure.kernel.verbs.compose import attempt as attempt
from perdure.kernel.verbs.compose import join as join
from perdure.kernel.verbs.compose import race as race
from perdure.kernel.verbs.events import publish as publish
from perdure.kernel.verbs.events import receive as receive
from perdure.kernel.verbs.events import receive_many as receive_many
from perdure.kernel.verbs.events import reply as reply
from perdure.kernel.verbs.events import send as send
from perdure.kernel.verbs.log import log as log
from perdure.kernel.verbs.randomness import random as random
from perdure.kernel.verbs.randomness import uuid4 as uuid4
from perdure.kernel.verbs.runs import ChildHandle as ChildHandle
from perdure.kernel.verbs.runs import EndedRun as EndedRun
from perdure.kernel.verbs.runs import cancel as cancel
from perdure.kernel.verbs.runs import wait_for_any as wait_for_any
from perdure.kernel.verbs.runs import wait_for_run as wait_for_run
from perdure.kernel.verbs.saga import saga as saga
from perdure.kernel.verbs.state import info as info
from perdure.kernel.verbs.state import state as state
from perdure.kernel.verbs.state import status as status
from perdure.limits import RELEASE as _RELEASE

if typing.TYPE_CHECKING:
    from perdure.engine.engine import Engine as Engine
    from perdure.engine.engine import RunHandle as RunHandle
    from perdure.engine.engine import run as run

__version__ = _RELEASE

#: What only a program that runs workflows needs, and where it is: loaded when it is first asked for, so that modules
#: which define workflows are imported quickly.
_LATER = {
    "Engine": "perdure.engine.engine",
    "RunHandle": "perdure.engine.engine",
    "run": "perdure.engine.engine",
}

if not typing.TYPE_CHECKING:  # a checker would want a list, and one that saw the function would accept every name
    # Also what is loaded later: `from perdure import *` asks for each of these.
    __all__ = sorted(
        {name for name, value in globals().items() if name[0] != "_" and type(value) is not type(typing)} | set(_LATER)
    )

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _LATER:
            raise import_module("perdure.moved").refusal(name)
        value = globals()[name] = getattr(import_module(_LATER[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
