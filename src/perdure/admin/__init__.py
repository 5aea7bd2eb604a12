"""What people do with runs and see of them: used by the engine and the CLI. Needs a store, and no worker.

views.py      how runs and records look
why.py        why a run is not moving
actions.py    pause, unpause, retry, delete, prune
resume.py     going on after a failure
fork.py       a new run from the past of another
transfer.py   a run as a file
check.py      open runs against the code on disk
"""
