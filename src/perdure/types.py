"""What annotations name: the objects that decorators, verbs and `Engine` give and take."""

from perdure.admin.views import RunView as RunView
from perdure.admin.views import Wait as Wait
from perdure.authoring.options import FailedAttempt as FailedAttempt
from perdure.authoring.registry import Registry as Registry
from perdure.authoring.step import Step as Step
from perdure.authoring.step import StepContext as StepContext
from perdure.authoring.workflow import Invocation as Invocation
from perdure.authoring.workflow import Workflow as Workflow
from perdure.engine.clock import Clock as Clock
from perdure.engine.settings import Settings as Settings
from perdure.kernel.verbs.durations import Duration as Duration
from perdure.kernel.verbs.saga import Saga as Saga
from perdure.store.model import Status as Status
from perdure.store.protocol import Store as Store
