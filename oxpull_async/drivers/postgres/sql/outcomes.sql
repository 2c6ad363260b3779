-- fragment: unlocked
-- A success also deletes the task's unique lock, so that the usual next enqueue meets no stale one; its
-- deletion reads the snapshot of before, so a lock that was taken over meanwhile is never touched.
unlocked AS (
    DELETE FROM oxpull_oxpulluniquelock WHERE (key, task_id) IN (
        SELECT unique_lock.key, unique_lock.task_id FROM landed
        JOIN oxpull_oxpulluniquelock AS unique_lock ON unique_lock.task_id = landed.id
        WHERE landed.status = 'SUCCESSFUL'
        FOR UPDATE OF unique_lock SKIP LOCKED
    )
)

-- name: settle
-- Outcomes land only where the epoch still holds on a RUNNING or LOST row. What another transaction keeps locked
-- is passed over, so that the others don't wait for it.
-- The status is hidden from the planner, which would rather read all RUNNING rows by their index, for each outcome.
-- The epoch moves on where the task's code still runs, so that it can't write.
WITH held AS MATERIALIZED (
    SELECT task.id, input.*
    FROM unnest(
        :ids::uuid[], :epochs::bigint[], :statuses::varchar[], :return_values::text[], :errors::text[],
        :run_afters::timestamptz[], :finished_ats::timestamptz[], :next_epochs::bigint[]
    ) AS input (task_id, epoch, status, return_value, errors, run_after, finished_at, next_epoch)
    JOIN django_ox_oxtask AS task ON task.id = input.task_id AND task.lease_epoch = input.epoch
    WHERE task.status || '' IN ('RUNNING', 'LOST')
    ORDER BY task.id
    FOR NO KEY UPDATE OF task SKIP LOCKED
), landed AS (
    UPDATE django_ox_oxtask AS task
    SET status = held.status, errors = held.errors::jsonb, lease_epoch = held.next_epoch,
        return_value = CASE held.status WHEN 'SUCCESSFUL' THEN held.return_value::jsonb ELSE task.return_value END,
        run_after = CASE held.status WHEN 'READY' THEN held.run_after ELSE task.run_after END,
        finished_at = CASE held.status WHEN 'READY' THEN task.finished_at ELSE held.finished_at END,
        locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
    FROM held WHERE task.id = held.id
    RETURNING task.id, task.status
), {{unlocked}}
SELECT id FROM landed

-- name: settle_successes
-- The same for what most outcomes are, at half the cost: successes of tasks that have never failed.
WITH held AS MATERIALIZED (
    SELECT task.id, input.return_value, input.finished_at
    FROM unnest(:ids::uuid[], :epochs::bigint[], :return_values::text[], :finished_ats::timestamptz[])
        AS input (id, lease_epoch, return_value, finished_at)
    JOIN django_ox_oxtask AS task ON task.id = input.id AND task.lease_epoch = input.lease_epoch
    WHERE task.status || '' IN ('RUNNING', 'LOST')
    ORDER BY task.id
    FOR NO KEY UPDATE OF task SKIP LOCKED
), landed AS (
    UPDATE django_ox_oxtask AS task
    SET status = 'SUCCESSFUL', errors = '[]', return_value = held.return_value::jsonb, finished_at = held.finished_at,
        locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
    FROM held WHERE task.id = held.id
    RETURNING task.id, task.status
), {{unlocked}}
SELECT id FROM landed

-- name: snooze
-- A task that wants to run later: as release, and a row that is LOST by now stays so.
WITH held AS MATERIALIZED (
    SELECT task.id, input.run_after
    FROM unnest(:ids::uuid[], :epochs::bigint[], :run_afters::timestamptz[]) AS input (id, lease_epoch, run_after)
    JOIN django_ox_oxtask AS task ON task.id = input.id AND task.lease_epoch = input.lease_epoch
    WHERE task.status || '' = 'RUNNING'
    ORDER BY task.id
    FOR NO KEY UPDATE OF task SKIP LOCKED
)
UPDATE django_ox_oxtask AS task
SET status = 'READY', attempts = attempts - 1, lease_epoch = lease_epoch + 1, run_after = held.run_after,
    worker_ids = worker_ids - (jsonb_array_length(worker_ids) - 1),
    started_at = CASE WHEN attempts = 1 THEN NULL ELSE started_at END,
    locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
FROM held WHERE task.id = held.id
RETURNING task.id
