"""asyncio for workflow code: a loop without clock, I/O and threads.

Everything in it happens in the same order on every replay.
"""
