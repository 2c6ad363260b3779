-- fragment: lock_and_task
-- The primary keys decide; an error ends the whole. Nothing here may ask how the statement before it went: where the
-- client has gone meanwhile, the server goes on to COMMIT although it couldn't answer, and ROW_COUNT() is -1.
INSERT INTO oxpull_oxpulluniquelock (`key`, task_id, task_path, queue_name, created_at)
VALUES (:key, :id, :task_path, :queue_name, :enqueued_at);
INSERT INTO django_ox_oxtask (
    id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
    run_after, attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch
) VALUES (
    :id, :task_path, :args, :kwargs, :queue_name, :priority, :takes_context, :backend_name, 'READY',
    :run_after, 0, :max_attempts, '[]', '[]', :enqueued_at, 0
)

-- name: insert_unique
-- A transaction in one round trip, for a key that was seen to be free: lock and task, or neither. The locking read
-- makes waiters queue: those who wait in an INSERT are all but one killed as a deadlock when the holder rolls back.
BEGIN;
SELECT 1 FROM oxpull_oxpulluniquelock WHERE `key` = :key FOR UPDATE;
{{lock_and_task}};
COMMIT

-- name: insert_unique_at_once
-- The same without waiting for a competitor who holds the key and hasn't committed.
BEGIN;
SELECT 1 FROM oxpull_oxpulluniquelock WHERE `key` = :key FOR UPDATE NOWAIT;
{{lock_and_task}};
COMMIT

-- name: lock_keys
-- Waits for competitors who hold one of these keys and haven't committed; see insert_unique. It reads a column that is
-- not in the index: else MySQL would rather read, and lock, a small index as a whole.
SELECT task_id FROM oxpull_oxpulluniquelock FORCE INDEX (PRIMARY)
WHERE `key` IN :keys ORDER BY `key` FOR UPDATE

-- name: lock_keys_at_once
-- The same without waiting.
SELECT task_id FROM oxpull_oxpulluniquelock FORCE INDEX (PRIMARY)
WHERE `key` IN :keys ORDER BY `key` FOR UPDATE NOWAIT

-- name: insert_lock
-- One lock row, or none where the key is taken. For many rows the list after VALUES is repeated, in key order.
INSERT IGNORE INTO oxpull_oxpulluniquelock (`key`, task_id, task_path, queue_name, created_at)
VALUES (:key, :task_id, :task_path, :queue_name, :created_at)

-- name: read_locks
-- Which task ids the locks of these keys name; our own uncommitted ones are seen.
SELECT `key`, task_id FROM oxpull_oxpulluniquelock WHERE `key` IN :keys

-- name: read_holder
-- What the lock of a key says now, with its holder's row where that exists.
SELECT unique_lock.`key`, unique_lock.task_id, {{task_row}}
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE unique_lock.`key` = :key

-- name: read_holders
-- The same for many keys.
SELECT unique_lock.`key`, unique_lock.task_id, {{task_row}}
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE unique_lock.`key` IN :keys

-- name: lock_holders
-- A current read under row locks, in id order: an operator's retry still in flight is waited for, then seen.
SELECT {{task_row}} FROM django_ox_oxtask AS task FORCE INDEX (PRIMARY)
WHERE task.id IN :ids ORDER BY task.id FOR UPDATE

-- name: take_locks_over
-- Compare-and-swap on the task id that each lock named, in key order. ASCII is converted to whatever character set the
-- column has; a collation of its own would clash with the column's.
UPDATE JSON_TABLE(:locks, '$[*]' COLUMNS (
    `key` varchar(64) CHARACTER SET ascii PATH '$.key',
    stale_task_id char(32) CHARACTER SET ascii PATH '$.stale_task_id',
    task_id char(32) CHARACTER SET ascii PATH '$.task_id',
    task_path varchar(255) PATH '$.task_path', queue_name varchar(128) PATH '$.queue_name',
    created_at datetime(6) PATH '$.created_at'
)) AS input
STRAIGHT_JOIN oxpull_oxpulluniquelock AS unique_lock FORCE INDEX (PRIMARY)
    ON unique_lock.`key` = input.`key` AND unique_lock.task_id <=> input.stale_task_id
SET unique_lock.task_id = input.task_id, unique_lock.task_path = input.task_path,
    unique_lock.queue_name = input.queue_name, unique_lock.created_at = input.created_at

-- name: delete_locks
-- Compare-and-swap on the task id that each lock named, in key order.
DELETE unique_lock FROM JSON_TABLE(:locks, '$[*]' COLUMNS (
    `key` varchar(64) CHARACTER SET ascii PATH '$.key', task_id char(32) CHARACTER SET ascii PATH '$.task_id'
)) AS input
STRAIGHT_JOIN oxpull_oxpulluniquelock AS unique_lock FORCE INDEX (PRIMARY)
    ON unique_lock.`key` = input.`key` AND unique_lock.task_id <=> input.task_id
