-- In place of the reference's four indexes on the task table, two that hold only the rows they are for.
-- A settled row then stands in no index but the primary key, so settling and pruning write less.
-- On a table that was found in place they are not added, because its own indexes already serve.

-- statement
-- Rows to claim in order; a worker that claims by task path uses oxpull_async_claim_idx instead.
-- only with new table: django_ox_oxtask
CREATE INDEX IF NOT EXISTS oxpull_async_ready_idx
    ON django_ox_oxtask (priority DESC, enqueued_at) WHERE status = 'READY';

-- statement
-- Running rows by the end of their lease, those that carry none at the end.
-- only with new table: django_ox_oxtask
CREATE INDEX IF NOT EXISTS oxpull_async_running_idx
    ON django_ox_oxtask (lease_expires_at) WHERE status = 'RUNNING';
