-- name: lock_expired
-- The reference's expired-lease predicate, by the database's clock: the stored expiry decides, unless an older
-- writer renewed locked_at alone; a row with neither is nobody's to reap.
SELECT id, lease_epoch, locked_by, attempts, max_attempts, errors::text
FROM django_ox_oxtask
WHERE status = 'RUNNING' AND (
    (lease_expires_at < STATEMENT_TIMESTAMP()
        AND (lease_expires_at >= locked_at
            OR locked_at < STATEMENT_TIMESTAMP() - make_interval(secs => :lease_seconds::float8)))
    OR (lease_expires_at IS NULL
        AND locked_at < STATEMENT_TIMESTAMP() - make_interval(secs => :lease_seconds::float8))
)
ORDER BY id
LIMIT :limit::int
FOR NO KEY UPDATE SKIP LOCKED

-- name: requeue
-- Under the row locks of lock_expired; the epoch moves, so the dead worker's outcome can't land.
-- The status is hidden from the planner: see settle.
UPDATE django_ox_oxtask AS task
SET status = 'READY', lease_epoch = task.lease_epoch + 1,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM unnest(:ids::uuid[], :epochs::bigint[]) AS input (id, lease_epoch)
WHERE task.id = input.id AND task.lease_epoch = input.lease_epoch AND task.status || '' = 'RUNNING'
RETURNING task.id

-- name: mark_lost
-- The epoch stays: a straggler may still write its outcome over LOST. The status is hidden as above.
UPDATE django_ox_oxtask AS task
SET status = 'LOST', errors = input.errors::jsonb, finished_at = :now::timestamptz,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM unnest(:ids::uuid[], :epochs::bigint[], :errors::text[]) AS input (id, lease_epoch, errors)
WHERE task.id = input.id AND task.lease_epoch = input.lease_epoch AND task.status || '' = 'RUNNING'
RETURNING task.id

-- name: retry
-- One further attempt; the epoch moves, so a straggler of a LOST row is fenced out.
WITH failed AS MATERIALIZED (
    SELECT id FROM django_ox_oxtask
    WHERE id = ANY(:ids::uuid[]) AND status IN ('FAILED', 'LOST') AND attempts < 32767
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE django_ox_oxtask AS task
SET status = 'READY', lease_epoch = lease_epoch + 1, max_attempts = attempts + 1, run_after = NULL,
    finished_at = NULL, locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM failed WHERE task.id = failed.id
RETURNING task.id

-- name: discard
-- The epoch stays: status alone keeps a straggler out.
WITH chosen AS MATERIALIZED (
    SELECT id FROM django_ox_oxtask
    WHERE id = ANY(:ids::uuid[]) AND status IN ('READY', 'WAITING', 'FAILED', 'LOST')
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE django_ox_oxtask AS task
SET status = 'DISCARDED', finished_at = :now::timestamptz,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM chosen WHERE task.id = chosen.id
RETURNING task.id

-- name: cancel
-- What runs loses its lease with the epoch, so that its worker stops it and nothing of it is written.
WITH chosen AS MATERIALIZED (
    SELECT id FROM django_ox_oxtask
    WHERE id = ANY(:ids::uuid[]) AND status IN ('READY', 'WAITING', 'RUNNING')
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE django_ox_oxtask AS task
SET status = 'DISCARDED', lease_epoch = lease_epoch + CASE WHEN status = 'RUNNING' THEN 1 ELSE 0 END,
    finished_at = :now::timestamptz, locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM chosen WHERE task.id = chosen.id
RETURNING task.id

-- name: expire_lease
-- The next pass of a reaper takes the row, unless its worker lives and renews the lease before that.
WITH chosen AS MATERIALIZED (
    SELECT id FROM django_ox_oxtask
    WHERE id = ANY(:ids::uuid[]) AND status = 'RUNNING' AND locked_at IS NOT NULL
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE django_ox_oxtask AS task
SET locked_at = :expired_at::timestamptz, lease_expires_at = :expired_at::timestamptz
FROM chosen WHERE task.id = chosen.id
RETURNING task.id

-- name: lock_prunable
-- Rows that somebody is just writing (a retry, a straggler) are left for a later pass, so no order of keys is needed.
SELECT id FROM django_ox_oxtask
WHERE status = ANY(:statuses::varchar[]) AND finished_at < :finished_before::timestamptz
ORDER BY finished_at LIMIT :limit::int
FOR UPDATE SKIP LOCKED

-- name: forget_ticks
-- The tick's foreign key has no action of its own.
UPDATE django_ox_oxscheduletick SET task_id = NULL WHERE task_id = ANY(:ids::uuid[])

-- name: delete_tasks
-- Under the row locks of lock_prunable.
DELETE FROM django_ox_oxtask WHERE id = ANY(:ids::uuid[]) RETURNING id

-- name: find_stale_locks
-- Candidates only: a plain read, judged again under the holders' row locks.
SELECT unique_lock.key, unique_lock.task_id, task.id
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING')
ORDER BY unique_lock.key LIMIT :limit::int

-- name: lock_settled_holders
-- A holder that is being retried at this moment is passed over, and keeps its key.
SELECT id FROM django_ox_oxtask
WHERE id = ANY(:ids::uuid[]) AND status NOT IN ('READY', 'RUNNING')
ORDER BY id FOR UPDATE SKIP LOCKED

-- name: delete_ticks
-- A schedule's newest tick stays, however old: it says what has been dispatched.
-- An array, since IN (SELECT … LIMIT … SKIP LOCKED) may be joined with the table, read anew for each of its rows, and
-- then find other rows than before.
DELETE FROM django_ox_oxscheduletick WHERE id = ANY(ARRAY(
    SELECT tick.id FROM django_ox_oxscheduletick AS tick
    WHERE tick.scheduled_for < :scheduled_before::timestamptz AND EXISTS (
        SELECT 1 FROM django_ox_oxscheduletick AS newer
        WHERE newer.schedule_name = tick.schedule_name AND newer.scheduled_for > tick.scheduled_for
    )
    ORDER BY tick.id LIMIT :limit::int FOR UPDATE SKIP LOCKED
)) RETURNING id
