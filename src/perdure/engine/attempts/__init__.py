"""Attempts: running the code of steps and handing outcomes to the worker, in parts with a law each.

runner         an attempt starts only after the turn that asked for it is durable; the parts, put together
attempt        one try of one step: what is known about it while it goes on
capacity       never more at once than the caps allow; the rest waits, first come, first served
serving        code that never waits shares a task; code that waits has one of its own
calling        async code runs on the host loop, sync code in a thread, isolated code in a process
timeouts       an attempt that takes too long is told at once, and loses its place if it goes on all the same
outcomes       whatever the code does becomes one outcome of its attempt, or nothing at all
interruptions  what comes from outside of a step is no outcome of it: nothing is recorded, it begins again
retry_hooks    a hook hears only of failures that are durable, and breaks nothing
threads, processes, isolation, isolated_jobs   how code runs elsewhere
"""

from perdure.engine.attempts.attempt import Attempt as Attempt
from perdure.engine.attempts.runner import StepRunner as StepRunner
