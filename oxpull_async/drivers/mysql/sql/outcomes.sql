-- name: find_task_locks
-- The unique locks that tasks hold. A lock never comes to name a task that runs already, so these can only go.
SELECT `key`, task_id FROM oxpull_oxpulluniquelock WHERE task_id IN :ids

-- name: lock_outcomes
-- The rows whose epoch still holds, locked in id order.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY)
WHERE (id, lease_epoch) IN :fences AND status IN ('RUNNING', 'LOST')
ORDER BY id FOR UPDATE

-- name: write_outcomes
-- Under the row locks of lock_outcomes. Only a success has a return value, only a retry a next run, and a retry leaves
-- finished_at alone. Driven by the document: an IN of a small table would rather be read, and locked, as a whole.
UPDATE JSON_TABLE(:outcomes, '$[*]' COLUMNS (
    id char(32) CHARACTER SET ascii PATH '$.id', status varchar(10) PATH '$.status',
    return_value longtext PATH '$.return_value', errors longtext PATH '$.errors',
    run_after datetime(6) PATH '$.run_after', finished_at datetime(6) PATH '$.finished_at'
)) AS input
STRAIGHT_JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = input.id
SET task.status = input.status, task.errors = input.errors,
    task.return_value = CASE input.status WHEN 'SUCCESSFUL' THEN input.return_value ELSE task.return_value END,
    task.run_after = CASE input.status WHEN 'READY' THEN input.run_after ELSE task.run_after END,
    task.finished_at = CASE input.status WHEN 'READY' THEN task.finished_at ELSE input.finished_at END,
    task.locked_by = NULL, task.locked_at = NULL, task.lease_expires_at = NULL
