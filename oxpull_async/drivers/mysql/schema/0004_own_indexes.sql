-- Indexes of this package on the reference's tables. InnoDB builds them while others go on writing.

-- statement
-- Finds the lock that a task row holds.
-- unless index: oxpull_oxpulluniquelock oxpull_async_lock_task_idx
CREATE INDEX oxpull_async_lock_task_idx ON oxpull_oxpulluniquelock (task_id);
