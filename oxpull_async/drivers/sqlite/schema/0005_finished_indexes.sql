-- Indexes of this package on the reference's tables.

-- statement
-- Finds what was settled lately, for statistics, and what was settled long ago, for pruning.
CREATE INDEX IF NOT EXISTS oxpull_async_finished_idx
    ON django_ox_oxtask (finished_at) WHERE finished_at IS NOT NULL;

-- statement
-- Counts the rows that wait for somebody to decide. Most rows never stand in it.
CREATE INDEX IF NOT EXISTS oxpull_async_undecided_idx
    ON django_ox_oxtask (status, queue_name) WHERE status IN ('WAITING', 'FAILED', 'LOST');
