"""What a workflow should not get from a helper."""

import time


def stamp() -> float:
    return time.time()
