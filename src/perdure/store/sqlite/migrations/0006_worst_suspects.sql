-- Suspects are claimed in the order of how often their worker died with them, the worst first.

DROP INDEX runs_suspect;
CREATE INDEX runs_suspect ON runs (recoveries DESC, ready_at)
    WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting') AND recoveries > 0;

PRAGMA user_version = 6;
