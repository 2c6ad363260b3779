-- name: insert_lock
-- The primary key decides; a key that is taken costs no error and nothing to roll back.
INSERT INTO oxpull_oxpulluniquelock (key, task_id, task_path, queue_name, created_at)
VALUES (:key, :id, :task_path, :queue_name, :enqueued_at)
ON CONFLICT (key) DO NOTHING

-- name: insert_locks
-- The same for many keys; what comes back are the keys that were free.
INSERT INTO oxpull_oxpulluniquelock (key, task_id, task_path, queue_name, created_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(:locks) WHERE true
ON CONFLICT (key) DO NOTHING
RETURNING key

-- name: read_holders
-- What the locks of these keys say now, each with its holder's row where that exists.
SELECT unique_lock.key, unique_lock.task_id, {{task_row}}
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE unique_lock.key IN (SELECT value FROM json_each(:keys))

-- name: take_over_lock
-- Compare-and-swap on the task id the lock named. The holder is judged in the same statement, because in the
-- caller's transaction, unlike ours, the look at it may be older than the write.
UPDATE oxpull_oxpulluniquelock
SET task_id = :id, task_path = :task_path, queue_name = :queue_name, created_at = :enqueued_at
WHERE key = :key AND task_id IS :stale_task_id
    AND NOT EXISTS (
        SELECT 1 FROM django_ox_oxtask AS holder
        WHERE holder.id = oxpull_oxpulluniquelock.task_id AND holder.status IN ('READY', 'RUNNING')
    )

-- name: delete_stale_locks
-- Look and deletion are one statement under the file's write lock: no holder can be retried between them.
DELETE FROM oxpull_oxpulluniquelock WHERE key IN (
    SELECT unique_lock.key
    FROM oxpull_oxpulluniquelock AS unique_lock
    LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
    WHERE task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING')
    ORDER BY unique_lock.key LIMIT :limit
)

-- name: identify
-- Each attached database's number, name and path, which is absolute, and empty for one in memory.
-- Not a SELECT: that would begin to read, and a transaction that has read doesn't wait for its turn to write.
PRAGMA database_list
