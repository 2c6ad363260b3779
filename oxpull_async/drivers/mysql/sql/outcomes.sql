-- name: find_task_locks
-- The unique locks that tasks hold. A lock never comes to name a task that runs already, so these can only go.
SELECT `key`, task_id FROM oxpull_oxpulluniquelock WHERE task_id IN :ids

-- name: lock_task_locks
-- Of the locks that may go with their tasks, those that nobody else keeps locked.
SELECT `key`, task_id FROM oxpull_oxpulluniquelock FORCE INDEX (PRIMARY)
WHERE `key` IN :keys ORDER BY `key` FOR UPDATE SKIP LOCKED

-- name: lock_outcomes
-- The rows whose epoch still holds, locked in id order; what another transaction keeps locked is passed over, so that
-- the others don't wait for it.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE (id, lease_epoch) IN :fences AND status IN ('RUNNING', 'LOST')
ORDER BY id FOR UPDATE SKIP LOCKED

-- name: write_outcomes
-- Under the row locks of lock_outcomes. Only a success has a return value, only a retry a next run, and a retry leaves
-- finished_at alone. The epoch moves on where the task's code still runs, so that it can't write. Driven by the document: an IN of a small table would rather be read, and locked, as a whole.
UPDATE JSON_TABLE(:outcomes, '$[*]' COLUMNS (
    id char(32) CHARACTER SET ascii PATH '$.id', status varchar(10) PATH '$.status',
    return_value longtext PATH '$.return_value', errors longtext PATH '$.errors',
    run_after datetime(6) PATH '$.run_after', finished_at datetime(6) PATH '$.finished_at',
    next_epoch bigint PATH '$.next_epoch'
)) AS input
STRAIGHT_JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = input.id
SET task.status = input.status, task.errors = input.errors, task.lease_epoch = input.next_epoch,
    task.return_value = CASE input.status WHEN 'SUCCESSFUL' THEN input.return_value ELSE task.return_value END,
    task.run_after = CASE input.status WHEN 'READY' THEN input.run_after ELSE task.run_after END,
    task.finished_at = CASE input.status WHEN 'READY' THEN task.finished_at ELSE input.finished_at END,
    task.locked_by = NULL, task.locked_at = NULL, task.lease_expires_at = NULL

-- name: lock_snoozed
-- The rows that still run at their epoch, locked in id order; one that is LOST by now stays so.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE (id, lease_epoch) IN :fences AND status = 'RUNNING'
ORDER BY id FOR UPDATE SKIP LOCKED

-- name: snooze
-- Under the row locks of lock_snoozed: as refund, to run later. What depends on the old values comes first, for each
-- column is assigned in turn.
UPDATE JSON_TABLE(:outcomes, '$[*]' COLUMNS (
    id char(32) CHARACTER SET ascii PATH '$.id', run_after datetime(6) PATH '$.run_after'
)) AS input
STRAIGHT_JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = input.id
SET task.started_at = CASE WHEN task.attempts = 1 THEN NULL ELSE task.started_at END,
    task.worker_ids = JSON_REMOVE(task.worker_ids, CONCAT('$[', JSON_LENGTH(task.worker_ids) - 1, ']')),
    task.attempts = task.attempts - 1, task.lease_epoch = task.lease_epoch + 1,
    task.status = 'READY', task.run_after = input.run_after,
    task.locked_by = NULL, task.locked_at = NULL, task.lease_expires_at = NULL
