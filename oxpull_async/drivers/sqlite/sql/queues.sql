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
