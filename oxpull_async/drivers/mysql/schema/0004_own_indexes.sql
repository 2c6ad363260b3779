-- Indexes of this package on the reference's tables. InnoDB builds them while others go on writing.

-- statement
-- Serves a claim by task path, so that rows of another code base aren't read, however many stand ahead.
-- unless index: django_ox_oxtask oxpull_async_claim_idx
CREATE INDEX oxpull_async_claim_idx ON django_ox_oxtask (status, task_path, priority DESC, enqueued_at);

-- statement
-- Finds the lock that a task row holds.
-- unless index: oxpull_oxpulluniquelock oxpull_async_lock_task_idx
CREATE INDEX oxpull_async_lock_task_idx ON oxpull_oxpulluniquelock (task_id);
