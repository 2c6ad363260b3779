-- name: pause_queue
-- A queue that is paused already keeps the time of its first pause.
INSERT INTO oxpull_async_paused_queue (queue_name, paused_at) VALUES (:queue_name, {{database_now}})
ON CONFLICT (queue_name) DO NOTHING

-- name: resume_queue
-- The next claim of any worker finds its rows.
DELETE FROM oxpull_async_paused_queue WHERE queue_name = :queue_name

-- name: paused_queues
-- As a rule a handful.
SELECT queue_name, paused_at FROM oxpull_async_paused_queue ORDER BY queue_name

-- name: limit_queue
-- A limit that is only changed keeps its time.
INSERT INTO oxpull_async_queue_limit (queue_name, places, limited_at) VALUES (:queue_name, :capacity, {{database_now}})
ON CONFLICT (queue_name) DO UPDATE SET places = excluded.places WHERE places <> excluded.places

-- name: unlimit_queue
-- The next claim of any worker takes its rows like others.
DELETE FROM oxpull_async_queue_limit WHERE queue_name = :queue_name

-- name: limited_queues
-- As a rule a handful, each with what runs of it.
SELECT queue_name, places, (
    SELECT count(*) FROM django_ox_oxtask AS task WHERE task.status = 'RUNNING' AND task.queue_name = limited.queue_name
), limited_at
FROM oxpull_async_queue_limit AS limited ORDER BY queue_name

-- name: lock_limit
-- The transaction around it has the file's write lock: nobody else counts meanwhile.
SELECT places FROM oxpull_async_queue_limit WHERE queue_name = :queue_name

-- name: count_running
-- Whoever runs it, and though its lease is over: the code may be running still, until the row is reaped.
SELECT count(*) FROM django_ox_oxtask WHERE status = 'RUNNING' AND queue_name = :queue_name
