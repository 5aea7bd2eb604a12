-- What people want to know of workers: their release of perdure, the workflows that they run (JSON), whether they leave.
ALTER TABLE workers ADD COLUMN release TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN definitions TEXT NOT NULL DEFAULT '[]';
ALTER TABLE workers ADD COLUMN draining_since INTEGER;

PRAGMA user_version = 7;
