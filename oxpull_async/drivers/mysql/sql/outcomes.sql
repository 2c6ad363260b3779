-- name: find_task_locks
-- The unique locks that tasks hold. A lock never comes to name a task that runs already, so these can only go.
SELECT `key`, task_id FROM oxpull_oxpulluniquelock WHERE task_id IN :ids

-- name: lock_outcomes
-- The rows whose epoch still holds, locked in id order.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE (id, lease_epoch) IN :fences AND status IN ('RUNNING', 'LOST')
ORDER BY id FOR UPDATE

-- name: settle_success
-- Under the row lock of lock_outcomes.
UPDATE django_ox_oxtask
SET status = 'SUCCESSFUL', return_value = :return_value, errors = :errors, finished_at = :finished_at,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id = :id

-- name: settle_retry
-- A retry leaves finished_at alone.
UPDATE django_ox_oxtask
SET status = 'READY', errors = :errors, run_after = :run_after,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id = :id

-- name: settle_failure
-- Neither a return value nor a next run.
UPDATE django_ox_oxtask
SET status = 'FAILED', errors = :errors, finished_at = :finished_at,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id = :id
