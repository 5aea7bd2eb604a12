"""What people see of runs: used by the engine's reads and the CLI. Reads the store only."""
