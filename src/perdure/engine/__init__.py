"""The impure part: clocks, threads, the worker that runs turns and steps, and the facade that users open."""
