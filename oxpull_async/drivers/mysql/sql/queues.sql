-- name: pause_queue
-- A queue that is paused already keeps the time of its first pause.
INSERT IGNORE INTO oxpull_async_paused_queue (queue_name, paused_at) VALUES (:queue_name, UTC_TIMESTAMP(6))

-- name: resume_queue
-- The next claim of any worker finds its rows.
DELETE FROM oxpull_async_paused_queue WHERE queue_name = :queue_name

-- name: paused_queues
-- As a rule a handful.
SELECT CONVERT(queue_name USING utf8mb4), paused_at FROM oxpull_async_paused_queue ORDER BY queue_name

-- name: limit_queue
-- A queue that is limited already keeps its row.
INSERT IGNORE INTO oxpull_async_queue_limit (queue_name, places, limited_at)
VALUES (:queue_name, :capacity, UTC_TIMESTAMP(6))

-- name: change_limit
-- A limit that is only changed keeps its time.
UPDATE oxpull_async_queue_limit SET places = :capacity WHERE queue_name = :queue_name AND places <> :capacity

-- name: unlimit_queue
-- The next claim of any worker takes its rows like others.
DELETE FROM oxpull_async_queue_limit WHERE queue_name = :queue_name

-- name: limited_queues
-- As a rule a handful, each with what runs of it.
SELECT CONVERT(queue_name USING utf8mb4), places, (
    SELECT COUNT(*) FROM django_ox_oxtask AS task FORCE INDEX (ox_dequeue_queue_idx)
    WHERE task.status = 'RUNNING' AND CAST(CONVERT(task.queue_name USING utf8mb4) AS BINARY) = limited.queue_name
), limited_at
FROM oxpull_async_queue_limit AS limited ORDER BY queue_name

-- name: lock_limit
-- Until the rows that are claimed are committed: nobody else counts meanwhile.
SELECT places FROM oxpull_async_queue_limit WHERE queue_name = :queue_name FOR UPDATE

-- name: count_running
-- A statement of its own, which sees what the lock was waited for. Whoever runs it, and though its lease is over:
-- the code may be running still, until the row is reaped.
SELECT COUNT(*) FROM django_ox_oxtask FORCE INDEX (ox_dequeue_queue_idx)
WHERE status = 'RUNNING' AND CAST(CONVERT(queue_name USING utf8mb4) AS BINARY) = :queue_name
