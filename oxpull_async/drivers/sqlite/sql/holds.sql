-- name: insert_holds
-- The primary key decides; what comes back are the keys that were free.
INSERT INTO oxpull_async_hold (key, task_id, task_path, queue_name, created_at, held_until)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]')
FROM json_each(:holds) WHERE true
ON CONFLICT (key) DO NOTHING
RETURNING key

-- name: read_holds
-- What the holds of these keys say now, each with its task's row where that exists.
SELECT hold.key, hold.task_id, hold.held_until, {{task_row}}
FROM oxpull_async_hold AS hold
LEFT JOIN django_ox_oxtask AS task ON task.id = hold.task_id
WHERE hold.key IN (SELECT value FROM json_each(:keys))

-- name: swap_hold
-- Compare-and-swap on the task id that the hold named.
UPDATE oxpull_async_hold
SET task_id = :id, task_path = :task_path, queue_name = :queue_name, created_at = :enqueued_at,
    held_until = :held_until
WHERE key = :key AND task_id = :stale_task_id

-- name: delete_stale_holds
-- Look and deletion are one statement under the file's write lock: no task can be retried between them.
DELETE FROM oxpull_async_hold WHERE key IN (
    SELECT hold.key
    FROM oxpull_async_hold AS hold
    LEFT JOIN django_ox_oxtask AS task ON task.id = hold.task_id
    WHERE (hold.held_until IS NULL OR hold.held_until <= :now OR task.id IS NULL)
        AND (task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING'))
    ORDER BY hold.key LIMIT :limit
)

-- name: read_key_of_hold
-- Since when a key is held, by whom, and until when at least.
SELECT task_id, created_at, held_until FROM oxpull_async_hold WHERE key = :key

-- name: read_key_of_lock
-- The same of a lock.
SELECT task_id, created_at, NULL FROM oxpull_oxpulluniquelock WHERE key = :key

-- name: release_hold
-- By an operator, whatever its task does.
DELETE FROM oxpull_async_hold WHERE key = :key AND task_id IS :task_id

-- name: release_lock
-- The same of a lock.
DELETE FROM oxpull_oxpulluniquelock WHERE key = :key AND task_id IS :task_id
