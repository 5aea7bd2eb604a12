"""Testing workflows: in memory, in virtual time, with crashes at every record. Nothing here runs in production."""

from perdure.errors import NeverWaits as NeverWaits
from perdure.errors import NothingLeft as NothingLeft
from perdure.testing.engine import VirtualEngine as VirtualEngine
from perdure.testing.mocks import TIMEOUT as TIMEOUT
from perdure.testing.mocks import Call as Call
from perdure.testing.mocks import Mock as Mock
from perdure.testing.text import journal_text as journal_text
from perdure.testing.time import virtual_time as virtual_time
