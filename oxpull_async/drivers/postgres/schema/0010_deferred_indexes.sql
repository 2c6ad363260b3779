-- Rows that aren't due yet are kept out of the way of claims, however many they are: in place of the index of all READY
-- rows by task path, one of those without a run_after, and two of those with one. A row goes either way.

-- statement
-- Serves a claim by task path, so that rows of another code base aren't read, however many stand ahead.
-- outside transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS oxpull_async_undeferred_idx
    ON django_ox_oxtask (task_path, priority DESC, enqueued_at) WHERE status = 'READY' AND run_after IS NULL;

-- statement
-- Finds the rows whose run_after has come, and the instant at which the next one's will.
-- outside transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS oxpull_async_deferred_idx
    ON django_ox_oxtask (task_path, run_after) WHERE status = 'READY' AND run_after IS NOT NULL;

-- statement
-- Serves a claim where the run_after of very many rows has come, such as after an outage: the others among them are
-- passed over without being read. The instant is written in a way of its own, so that the planner takes neither of these
-- indexes for the other.
-- outside transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS oxpull_async_deferred_order_idx
    ON django_ox_oxtask (task_path, priority DESC, enqueued_at, COALESCE(run_after, 'infinity'))
    WHERE status = 'READY' AND COALESCE(run_after, 'infinity') < 'infinity';

-- statement
-- Nothing reads it any more.
-- outside transaction
DROP INDEX CONCURRENTLY IF EXISTS oxpull_async_claim_idx;
