"""The worker: everything a process does for the runs it owns, in parts with a law each.

    starting     a new run and its first turn become one commit
    loading      a stored run becomes resident, or is given back
    pump         every run that is ready gets one turn
    committing   nothing leaves before it is durable
    leaving      whatever leaves memory is given back once
    residents    the one owner of what is in memory
    inbound      what the store tells of reaches the run it is for, or the sweep

The path of one step's result: the step's code returns -> `attempts` queues an outcome -> `pump` takes a turn, outside
of any task of the host -> `store.commit` -> `committing` starts what the code asked for. One turn of a run is in flight
at a time; what arrives meanwhile goes into the next one, so a fan-out of a thousand steps needs few commits. Turns of
all runs that are ready share one commit.
"""

from perdure.engine.worker.worker import Worker as Worker
