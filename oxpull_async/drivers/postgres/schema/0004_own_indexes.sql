-- Indexes of this package on the reference's tables, built while others go on writing there.
-- An interrupted build leaves an invalid index under the name, which IF NOT EXISTS would take for the real one:
-- the runner drops an invalid one first.

-- statement
-- Finds the lock that a task row holds.
-- outside transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS oxpull_async_lock_task_idx ON oxpull_oxpulluniquelock (task_id);
