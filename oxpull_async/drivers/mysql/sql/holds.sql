-- name: insert_hold
-- One hold, or none where the key is taken. For many rows the list after VALUES is repeated, in key order.
INSERT IGNORE INTO oxpull_async_hold (`key`, task_id, task_path, queue_name, created_at, held_until)
VALUES (:key, :task_id, :task_path, :queue_name, :created_at, :held_until)

-- name: read_hold_ids
-- Which task ids the holds of these keys name; our own uncommitted ones are seen.
SELECT `key`, task_id FROM oxpull_async_hold WHERE `key` IN :keys

-- name: read_holds
-- What the holds of these keys say, each with its task's row where that exists: as committed, or as the snapshot has it.
SELECT hold.`key`, hold.task_id, hold.held_until, {{task_row}}
FROM oxpull_async_hold AS hold
LEFT JOIN django_ox_oxtask AS task ON task.id = hold.task_id
WHERE hold.`key` IN :keys

-- name: lock_holds
-- As they are now, in key order, whatever the snapshot has.
SELECT `key`, task_id, held_until FROM oxpull_async_hold FORCE INDEX (PRIMARY)
WHERE `key` IN :keys ORDER BY `key` FOR UPDATE

-- name: swap_holds
-- Compare-and-swap on the task id that each hold named, in key order; see take_locks_over.
UPDATE JSON_TABLE(:holds, '$[*]' COLUMNS (
    `key` varchar(64) CHARACTER SET ascii PATH '$.key',
    stale_task_id char(32) CHARACTER SET ascii PATH '$.stale_task_id',
    task_id char(32) CHARACTER SET ascii PATH '$.task_id',
    task_path varchar(255) PATH '$.task_path', queue_name varchar(128) PATH '$.queue_name',
    created_at datetime(6) PATH '$.created_at', held_until datetime(6) PATH '$.held_until'
)) AS input
STRAIGHT_JOIN oxpull_async_hold AS hold FORCE INDEX (PRIMARY)
    ON hold.`key` = input.`key` AND hold.task_id = input.stale_task_id
SET hold.task_id = input.task_id, hold.task_path = input.task_path, hold.queue_name = input.queue_name,
    hold.created_at = input.created_at, hold.held_until = input.held_until

-- name: find_stale_holds
-- Candidates only: judged again under the row locks of their tasks.
SELECT hold.`key`, hold.task_id, task.id
FROM oxpull_async_hold AS hold
LEFT JOIN django_ox_oxtask AS task ON task.id = hold.task_id
WHERE (hold.held_until IS NULL OR hold.held_until <= :now OR task.id IS NULL)
    AND (task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING'))
ORDER BY hold.`key` LIMIT :limit

-- name: delete_holds
-- Compare-and-swap on the task id that each hold named, in key order.
DELETE hold FROM JSON_TABLE(:locks, '$[*]' COLUMNS (
    `key` varchar(64) CHARACTER SET ascii PATH '$.key', task_id char(32) CHARACTER SET ascii PATH '$.task_id'
)) AS input
STRAIGHT_JOIN oxpull_async_hold AS hold FORCE INDEX (PRIMARY)
    ON hold.`key` = input.`key` AND hold.task_id = input.task_id

-- name: read_key_of_hold
-- Since when a key is held, by whom, and until when at least.
SELECT task_id, created_at, held_until FROM oxpull_async_hold WHERE `key` = :key

-- name: read_key_of_lock
-- The same of a lock.
SELECT task_id, created_at, NULL FROM oxpull_oxpulluniquelock WHERE `key` = :key

-- name: release_hold
-- By an operator, whatever its task does.
DELETE FROM oxpull_async_hold WHERE `key` = :key AND task_id <=> :task_id

-- name: release_lock
-- The same of a lock.
DELETE FROM oxpull_oxpulluniquelock WHERE `key` = :key AND task_id <=> :task_id
