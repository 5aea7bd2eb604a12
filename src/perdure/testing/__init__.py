"""Testing workflows: in memory, in virtual time, with crashes at every record. Nothing here runs in production."""

from perdure.errors import Deadlocked as Deadlocked
from perdure.errors import NeverWaits as NeverWaits
from perdure.errors import NotCrashProof as NotCrashProof
from perdure.errors import NotReplayable as NotReplayable
from perdure.testing.crash import crash_everywhere as crash_everywhere
from perdure.testing.effects import Effects as Effects
from perdure.testing.engine import VirtualEngine as VirtualEngine
from perdure.testing.histories import check_history as check_history
from perdure.testing.histories import load_history as load_history
from perdure.testing.histories import replays as replays
from perdure.testing.histories import save_history as save_history
from perdure.testing.mocks import TIMEOUT as TIMEOUT
from perdure.testing.mocks import Call as Call
from perdure.testing.mocks import Mock as Mock
from perdure.testing.report import CrashReport as CrashReport
from perdure.testing.text import journal_text as journal_text
from perdure.testing.time import virtual_time as virtual_time
from perdure.testing.wrappers import CrashingStore as CrashingStore
from perdure.testing.wrappers import FaultyStore as FaultyStore
