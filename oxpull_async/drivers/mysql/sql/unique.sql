-- name: insert_unique
-- A transaction in one round trip: the lock, then the task if the lock is ours, then whose lock it is. A key that
-- is visibly held is left alone, for a lost INSERT locks the row it lost to. ROW_COUNT() is that of the statement
-- before. The look comes before COMMIT: after it, our row may have run and gone already.
BEGIN;
INSERT IGNORE INTO oxpull_oxpulluniquelock (`key`, task_id, task_path, queue_name, created_at)
SELECT :key, :id, :task_path, :queue_name, :enqueued_at FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM oxpull_oxpulluniquelock AS held WHERE held.`key` = :key);
INSERT INTO django_ox_oxtask (
    id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
    run_after, attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch
)
SELECT :id, :task_path, :args, :kwargs, :queue_name, :priority, :takes_context, :backend_name, 'READY',
    :run_after, 0, :max_attempts, '[]', '[]', :enqueued_at, 0
FROM DUAL WHERE ROW_COUNT() = 1;
SELECT unique_lock.task_id = :id, unique_lock.task_id, {{task_row}}
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id AND unique_lock.task_id <> :id
WHERE unique_lock.`key` = :key;
COMMIT

-- name: insert_lock
-- One lock row, or none where the key is taken. For many rows the list after VALUES is repeated, in key order.
INSERT IGNORE INTO oxpull_oxpulluniquelock (`key`, task_id, task_path, queue_name, created_at)
VALUES (:key, :task_id, :task_path, :queue_name, :created_at)

-- name: read_locks
-- Which task ids the locks of these keys name; our own uncommitted ones are seen.
SELECT `key`, task_id FROM oxpull_oxpulluniquelock WHERE `key` IN :keys

-- name: read_holders
-- What the locks of these keys say now, each with its holder's row where that exists.
SELECT unique_lock.`key`, unique_lock.task_id, {{task_row}}
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE unique_lock.`key` IN :keys

-- name: lock_holders
-- A current read under row locks, in id order: an operator's retry still in flight is waited for, then seen.
SELECT {{task_row}} FROM django_ox_oxtask AS task FORCE INDEX (PRIMARY)
WHERE task.id IN :ids ORDER BY task.id FOR UPDATE

-- name: take_lock_over
-- Compare-and-swap on the task id the lock named.
UPDATE oxpull_oxpulluniquelock
SET task_id = :task_id, task_path = :task_path, queue_name = :queue_name, created_at = :created_at
WHERE `key` = :key AND task_id <=> :stale_task_id

-- name: delete_stale_lock
-- Compare-and-swap on the task id the lock named.
DELETE FROM oxpull_oxpulluniquelock WHERE `key` = :key AND task_id <=> :task_id
