-- name: lock_expired
-- The reference's expired-lease predicate, by the database's clock: the stored expiry decides, unless an older
-- writer renewed locked_at alone; a row with neither is nobody's to reap. The rows stay as they are seen here,
-- because the transaction that surrounds this holds the file's write lock. The plus sign keeps the planner from
-- walking all rows in the order that is wanted, where there is only an index of RUNNING ones.
SELECT id, lease_epoch, locked_by, attempts, max_attempts, errors
FROM django_ox_oxtask
WHERE status = 'RUNNING' AND (
    (lease_expires_at < {{database_now}} AND (lease_expires_at >= locked_at OR locked_at < {{lease_ago}}))
    OR (lease_expires_at IS NULL AND locked_at < {{lease_ago}})
)
ORDER BY +id
LIMIT :limit

-- name: requeue
-- The epoch moves, so the dead worker's outcome can't land.
UPDATE django_ox_oxtask AS task
SET status = 'READY', lease_epoch = lease_epoch + 1,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM json_each(:granted) AS granted
WHERE {{is_granted}} AND +task.status = 'RUNNING'
RETURNING id

-- name: mark_lost
-- The epoch stays: a straggler may still write its outcome over LOST.
UPDATE django_ox_oxtask
SET status = 'LOST', errors = :errors, finished_at = :now,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id = :id AND lease_epoch = :epoch AND +status = 'RUNNING'

-- name: retry
-- One further attempt; the epoch moves, so a straggler of a LOST row is fenced out.
UPDATE django_ox_oxtask
SET status = 'READY', lease_epoch = lease_epoch + 1, max_attempts = attempts + 1, run_after = NULL,
    finished_at = NULL, locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +status IN ('FAILED', 'LOST') AND attempts < 32767
RETURNING id

-- name: discard
-- The epoch stays: status alone keeps a straggler out.
UPDATE django_ox_oxtask
SET status = 'DISCARDED', finished_at = :now,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +status IN ('READY', 'WAITING', 'FAILED', 'LOST')
RETURNING id

-- name: cancel
-- What runs loses its lease with the epoch, so that its worker stops it and nothing of it is written.
UPDATE django_ox_oxtask
SET status = 'DISCARDED', lease_epoch = lease_epoch + (status = 'RUNNING'), finished_at = :now,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +status IN ('READY', 'WAITING', 'RUNNING')
RETURNING id

-- name: expire_lease
-- The next pass of a reaper takes the row, unless its worker lives and renews the lease before that.
UPDATE django_ox_oxtask
SET locked_at = :expired_at, lease_expires_at = :expired_at
WHERE id IN (SELECT value FROM json_each(:ids)) AND +status = 'RUNNING' AND locked_at IS NOT NULL
RETURNING id

-- name: lock_prunable
-- The plus sign keeps the planner to the index of what is finished. The rows stay as they are seen here, because
-- the transaction that surrounds this holds the file's write lock.
SELECT id FROM django_ox_oxtask
WHERE +status IN (SELECT value FROM json_each(:statuses)) AND finished_at < :finished_before
ORDER BY finished_at LIMIT :limit

-- name: forget_ticks
-- The tick's foreign key has no action of its own.
UPDATE django_ox_oxscheduletick SET task_id = NULL WHERE task_id IN (SELECT value FROM json_each(:ids))

-- name: delete_tasks
-- By primary key.
DELETE FROM django_ox_oxtask WHERE id IN (SELECT value FROM json_each(:ids))

-- name: delete_ticks
-- A schedule's newest tick stays, however old: it says what has been dispatched.
DELETE FROM django_ox_oxscheduletick WHERE id IN (
    SELECT tick.id FROM django_ox_oxscheduletick AS tick
    WHERE tick.scheduled_for < :scheduled_before AND EXISTS (
        SELECT 1 FROM django_ox_oxscheduletick AS newer
        WHERE newer.schedule_name = tick.schedule_name AND newer.scheduled_for > tick.scheduled_for
    )
    LIMIT :limit
)
