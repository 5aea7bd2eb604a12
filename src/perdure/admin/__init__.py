"""What people do with runs and see of them: `engine.admin`, or `Admin(store)`. Needs a store, and no worker.

admin.py      `Admin`, which is all of it; what it only reads is in looking.py
listener.py   the engine of the same process, if there is one, hears at once
views.py      how runs and records look
why.py        why a run is not moving; what workers have to do with it is in attendance.py
fleet.py      workers: how they stand, what they run and hold
actions.py    pause, unpause, retry, delete, prune
resume.py     going on after a failure
fork.py       a new run from the past of another
transfer.py   a run as a file
check.py      open runs against the code on disk
"""

from perdure.admin.admin import Admin as Admin
from perdure.admin.check import Checked as Checked
from perdure.admin.fleet import WorkerView as WorkerView
from perdure.admin.views import DeadLetterView as DeadLetterView
from perdure.admin.views import HistoryEntry as HistoryEntry
from perdure.admin.views import PublishedView as PublishedView
from perdure.admin.why import Reason as Reason
