-- Indexes of this package on the reference's tables.

-- statement
-- Finds the lock that a task row holds.
CREATE INDEX IF NOT EXISTS oxpull_async_lock_task_idx ON oxpull_oxpulluniquelock (task_id);
