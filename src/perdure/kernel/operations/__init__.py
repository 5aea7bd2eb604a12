"""What a run can wait for, one module each.

A module has the operation, the records that are about it, how it is asked for, what its records do to a run, what it
asks of the engine, and how it is described to people. What else knows a kind of operation or of record asks the class:

    Operation.answered_by, outlives_code, request(), entry(), end_of(), detail(), give_up(), abandon(), let_go()
    Body.about, settles, opens, may_follow_end, is_end, apply(), edited()

To add one: write its module, name it below, and give it a verb (`kernel.verbs`).
"""

from __future__ import annotations

from perdure.kernel.operations import child, loop, publish, receive, reply, send, step, timer, watch

__all__ = ["child", "loop", "publish", "receive", "reply", "send", "step", "timer", "watch"]
