"""Auto mode: every value durable without writing a step.

    source     finds the tree of a decorated function in its file
    names      which names are the function's own, and which calls can only compute
    checks     refuses what cannot be made durable, with the line and the way out
    transform  rewrites each call that may need recording into a question to the runtime
    build      compiles the rewritten tree to a function with the same lines, closure and defaults
    kinds      what a called object is: to be recorded, to be called in place, or read from the process
    runtime    answers those questions while the workflow runs: most become ordinary steps

Loaded by the first `@workflow(auto=True)`.
"""
