-- name: insert_holds
-- In key order, so that two such statements can't deadlock. The primary key decides.
INSERT INTO oxpull_async_hold (key, task_id, task_path, queue_name, created_at, held_until)
SELECT key, id, task_path, queue_name, enqueued_at, held_until
FROM unnest(
    :keys::varchar[], :ids::uuid[], :task_paths::varchar[], :queue_names::varchar[], :enqueued_ats::timestamptz[],
    :held_untils::timestamptz[]
) AS input (key, id, task_path, queue_name, enqueued_at, held_until)
ORDER BY key
ON CONFLICT (key) DO NOTHING
RETURNING key

-- name: read_holds
-- What the holds of these keys say now, each with its task's row where that exists.
SELECT hold.key, hold.task_id, hold.held_until, {{task_row}}
FROM oxpull_async_hold AS hold
LEFT JOIN django_ox_oxtask AS task ON task.id = hold.task_id
WHERE hold.key = ANY(:keys::varchar[])

-- name: swap_holds
-- Compare-and-swap on the task id that each hold named, in key order. An UPDATE will do: nobody else's pruning
-- follows the rows of this table, and our own names the task id too.
WITH stale AS MATERIALIZED (
    SELECT input.*
    FROM unnest(
        :keys::varchar[], :stale_task_ids::uuid[], :ids::uuid[], :task_paths::varchar[], :queue_names::varchar[],
        :enqueued_ats::timestamptz[], :held_untils::timestamptz[]
    ) AS input (key, stale_task_id, id, task_path, queue_name, enqueued_at, held_until)
    JOIN oxpull_async_hold AS hold ON hold.key = input.key AND hold.task_id = input.stale_task_id
    ORDER BY hold.key
    FOR UPDATE OF hold
)
UPDATE oxpull_async_hold AS hold
SET task_id = stale.id, task_path = stale.task_path, queue_name = stale.queue_name, created_at = stale.enqueued_at,
    held_until = stale.held_until
FROM stale WHERE hold.key = stale.key AND hold.task_id = stale.stale_task_id
RETURNING hold.key

-- name: find_stale_holds
-- Candidates only: judged again under the row locks of their tasks.
SELECT hold.key, hold.task_id, task.id
FROM oxpull_async_hold AS hold
LEFT JOIN django_ox_oxtask AS task ON task.id = hold.task_id
WHERE (hold.held_until IS NULL OR hold.held_until <= :now::timestamptz OR task.id IS NULL)
    AND (task.id IS NULL OR task.status NOT IN ('READY', 'RUNNING'))
ORDER BY hold.key LIMIT :limit::int

-- name: delete_holds
-- Compare-and-swap on the task id that each hold named.
WITH stale AS MATERIALIZED (
    SELECT hold.key
    FROM unnest(:keys::varchar[], :task_ids::uuid[]) AS input (key, task_id)
    JOIN oxpull_async_hold AS hold ON hold.key = input.key AND hold.task_id = input.task_id
    ORDER BY hold.key
    FOR UPDATE OF hold
)
DELETE FROM oxpull_async_hold AS hold USING stale WHERE hold.key = stale.key RETURNING hold.key

-- name: read_key_of_hold
-- Since when a key is held, by whom, and until when at least.
SELECT task_id, created_at, held_until FROM oxpull_async_hold WHERE key = :key::varchar

-- name: read_key_of_lock
-- The same of a lock.
SELECT task_id, created_at, NULL::timestamptz FROM oxpull_oxpulluniquelock WHERE key = :key::varchar

-- name: release_hold
-- By an operator, whatever its task does.
DELETE FROM oxpull_async_hold WHERE key = :key::varchar AND task_id IS NOT DISTINCT FROM :task_id::uuid RETURNING key

-- name: release_lock
-- The same of a lock.
DELETE FROM oxpull_oxpulluniquelock
WHERE key = :key::varchar AND task_id IS NOT DISTINCT FROM :task_id::uuid RETURNING key
