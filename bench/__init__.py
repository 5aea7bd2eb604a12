"""The benchmark: `make bench` beside other systems, `make bench-quick` for perdure and the limits alone.

    workloads.py   what is measured, with its counts: one definition for every system
    wire.py        how an adapter process talks to the driver (only the standard library: it runs everywhere)
    adapters/      one file per system: its documented fast path for each workload; `limits.py` has none in it at all.
                   Those of perdure: `perdure.py`, steps that do real work in `perdure_work.py`, `perdure_stores.py`
    systems.py     the systems: where they live, what they keep safe by default
    install.py     makes a virtual environment for each of them under bench/.venvs
    interpreter.py the Python that all of them are measured with
    servers.py     PostgreSQL and Restate, started and stopped in a temporary directory
    driver.py      one process for each system, workload and round, the bare commits measured before and after
    figures.py     from raw samples to medians, ranges and ratios
    bars.py        what the project demands of itself; reached or not is computed
    table.py, page.py, plot.py   the terminal, bench/RESULTS.md, bench/RESULTS.svg
    compare.py     this checkout beside another one, by turns: make bench-compare WITH=../other
    scale.py       many waiting runs on one file, by hand: python -m bench.scale 2000 200000
    instructions.py   how many bytecodes two kernels take, compared with a budget in the tests

Nothing here is an assertion about time: machines differ and are busy. What can be asserted are instruction counts.
"""
