-- name: settle
-- An outcome lands only where the epoch still holds on a RUNNING or LOST row. One row a statement: within one
-- transaction and one prepared statement, SQLite gains nothing from joining them.
-- The epoch moves on where the task's code still runs, so that it can't write.
UPDATE django_ox_oxtask
SET status = :status, errors = :errors, lease_epoch = :next_epoch,
    return_value = CASE :status WHEN 'SUCCESSFUL' THEN :return_value ELSE return_value END,
    run_after = CASE :status WHEN 'READY' THEN :run_after ELSE run_after END,
    finished_at = CASE :status WHEN 'READY' THEN finished_at ELSE :finished_at END,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id = :id AND lease_epoch = :epoch AND +status IN ('RUNNING', 'LOST')

-- name: snooze
-- A task that wants to run later: as release, and a row that is LOST by now stays so.
UPDATE django_ox_oxtask
SET status = 'READY', attempts = attempts - 1, lease_epoch = lease_epoch + 1, run_after = :run_after,
    worker_ids = json_remove(worker_ids, '$[#-1]'),
    started_at = CASE WHEN attempts = 1 THEN NULL ELSE started_at END,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
WHERE id = :id AND lease_epoch = :epoch AND +status = 'RUNNING'

-- name: unlock
-- A success also deletes the task's unique lock, so that the usual next enqueue meets no stale one.
DELETE FROM oxpull_oxpulluniquelock WHERE task_id IN (SELECT value FROM json_each(:ids))
