-- Indexes of this package on the reference's tables.

-- statement
-- Serves a claim by task path, so that rows of another code base aren't read, however many stand ahead.
CREATE INDEX IF NOT EXISTS oxpull_async_claim_idx
    ON django_ox_oxtask (task_path, priority DESC, enqueued_at) WHERE status = 'READY';

-- statement
-- Finds the lock that a task row holds.
CREATE INDEX IF NOT EXISTS oxpull_async_lock_task_idx ON oxpull_oxpulluniquelock (task_id);
