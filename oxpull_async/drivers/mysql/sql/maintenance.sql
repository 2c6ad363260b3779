-- fragment: lease_is_over
-- The reference's predicate, by the database's clock: the stored expiry decides, unless an older writer renewed
-- locked_at alone; a row with neither is nobody's to reap.
status = 'RUNNING' AND (
    (lease_expires_at < UTC_TIMESTAMP(6)
        AND (lease_expires_at >= locked_at
            OR locked_at < TIMESTAMPADD(MICROSECOND, -:lease_microseconds, UTC_TIMESTAMP(6))))
    OR (lease_expires_at IS NULL
        AND locked_at < TIMESTAMPADD(MICROSECOND, -:lease_microseconds, UTC_TIMESTAMP(6)))
)

-- name: find_expired
-- Candidates only, without locks: a scan that locks would be in the way of renewals.
SELECT id FROM django_ox_oxtask WHERE {{lease_is_over}} ORDER BY id LIMIT :limit

-- name: lock_expired
-- Judged again under row locks; rows that somebody is just writing are passed over.
SELECT id, lease_epoch, locked_by, attempts, max_attempts, errors
FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND {{lease_is_over}} ORDER BY id FOR UPDATE SKIP LOCKED

-- name: requeue
-- Under the row locks of lock_expired; the epoch moves, so the dead worker's outcome can't land.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET status = 'READY', lease_epoch = lease_epoch + 1, locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN :ids

-- name: mark_lost
-- Under the row locks of lock_expired. The epoch stays: a straggler may still write its outcome over LOST.
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    id char(32) CHARACTER SET ascii PATH '$.id', errors longtext PATH '$.errors'
)) AS input
STRAIGHT_JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = input.id
SET task.status = 'LOST', task.errors = input.errors, task.finished_at = :now,
    task.locked_by = NULL, task.locked_at = NULL, task.lease_expires_at = NULL

-- name: lock_retryable
-- In id order.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status IN ('FAILED', 'LOST') AND attempts < 32767 ORDER BY id FOR UPDATE

-- name: retry
-- One further attempt; the epoch moves, so a straggler of a LOST row is fenced out.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET status = 'READY', lease_epoch = lease_epoch + 1, max_attempts = attempts + 1, run_after = NULL,
    finished_at = NULL, locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN :ids

-- name: lock_discardable
-- In id order.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status IN ('READY', 'WAITING', 'FAILED', 'LOST') ORDER BY id FOR UPDATE

-- name: discard
-- The epoch stays: status alone keeps a straggler out.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET status = 'DISCARDED', finished_at = :now, locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN :ids

-- name: lock_cancellable
-- In id order.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status IN ('READY', 'WAITING', 'RUNNING') ORDER BY id FOR UPDATE

-- name: cancel
-- What runs loses its lease with the epoch, so that its worker stops it and nothing of it is written. The epoch
-- comes first: an assignment sees those before it.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET lease_epoch = lease_epoch + (status = 'RUNNING'), status = 'DISCARDED', finished_at = :now,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id IN :ids

-- name: lock_leased
-- In id order.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status = 'RUNNING' AND locked_at IS NOT NULL ORDER BY id FOR UPDATE

-- name: expire_lease
-- The next pass of a reaper takes the row, unless its worker lives and renews the lease before that.
UPDATE django_ox_oxtask FORCE INDEX (PRIMARY)
SET locked_at = :expired_at, lease_expires_at = :expired_at
WHERE id IN :ids

-- name: find_prunable
-- Candidates only, without locks.
SELECT id FROM django_ox_oxtask
WHERE status IN :statuses AND finished_at < :finished_before ORDER BY finished_at LIMIT :limit

-- name: lock_prunable
-- Rows that somebody is just writing (a retry, a straggler) are left for a later pass.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status IN :statuses AND finished_at < :finished_before ORDER BY id FOR UPDATE SKIP LOCKED

-- name: forget_ticks
-- The tick's foreign key has no action of its own.
UPDATE django_ox_oxscheduletick SET task_id = NULL WHERE task_id IN :ids

-- name: delete_tasks
-- Under the row locks of lock_prunable. An IN of a small table would rather be read, and locked, as a whole.
DELETE task FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id char(32) CHARACTER SET ascii PATH '$')) AS input
STRAIGHT_JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = input.id

-- name: find_stale_locks
-- Candidates only: a plain read, judged again under the holders' row locks.
SELECT unique_lock.`key`, unique_lock.task_id, task.id
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING')
ORDER BY unique_lock.`key` LIMIT :limit

-- name: lock_settled_holders
-- A holder that is being retried at this moment is passed over, and keeps its key.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE id IN :ids AND status NOT IN ('READY', 'RUNNING')
ORDER BY id FOR UPDATE SKIP LOCKED

-- name: find_old_ticks
-- A schedule's newest tick stays, however old: it says what has been dispatched.
SELECT tick.id FROM django_ox_oxscheduletick AS tick
WHERE tick.scheduled_for < :scheduled_before AND EXISTS (
    SELECT 1 FROM django_ox_oxscheduletick AS newer
    WHERE newer.schedule_name = tick.schedule_name AND newer.scheduled_for > tick.scheduled_for
)
ORDER BY tick.id LIMIT :limit

-- name: delete_ticks
-- By primary key: two that prune at once meet in the same order.
DELETE FROM django_ox_oxscheduletick WHERE id IN :tick_ids ORDER BY id
