-- Runs whose worker died with them, apart from the others that are due: a claim wants few of the former and many of the
-- latter, and looked at all of the one to find the other.

DROP INDEX runs_claimable;
CREATE INDEX runs_due ON runs (ready_at)
    WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting') AND recoveries = 0;
CREATE INDEX runs_suspect ON runs (ready_at)
    WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting') AND recoveries > 0;

PRAGMA user_version = 5;
