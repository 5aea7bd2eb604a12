-- How many records of a run's journal were deleted because no replay needs them (iterations of loops).
ALTER TABLE runs ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 2;
