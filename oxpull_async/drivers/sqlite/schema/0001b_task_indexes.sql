-- The reference's indexes on the task table.

-- statement
-- Serves the claim of a worker that takes every queue.
-- only with new table: django_ox_oxtask
CREATE INDEX IF NOT EXISTS ox_dequeue_idx ON django_ox_oxtask (status, priority DESC, enqueued_at);

-- statement
-- Serves the claim of a worker that takes some queues.
-- only with new table: django_ox_oxtask
CREATE INDEX IF NOT EXISTS ox_dequeue_queue_idx
    ON django_ox_oxtask (status, queue_name, priority DESC, enqueued_at);

-- statement
-- Finds leases that carry no expiry, by the instant at which they were taken.
-- only with new table: django_ox_oxtask
CREATE INDEX IF NOT EXISTS ox_reaper_idx ON django_ox_oxtask (status, locked_at);

-- statement
-- Finds leases that have run out.
-- only with new table: django_ox_oxtask
CREATE INDEX IF NOT EXISTS ox_reaper_expiry_idx ON django_ox_oxtask (status, lease_expires_at);
