-- name: settle
-- Outcomes land only where the epoch still holds on a RUNNING or LOST row. Rows are locked in id order.
-- The status is hidden from the planner, which would rather read all RUNNING rows by their index, for each outcome.
-- A success also deletes the task's unique lock, so that the usual next enqueue meets no stale one; its
-- deletion reads the snapshot of before, so a lock that was taken over meanwhile is never touched.
WITH held AS MATERIALIZED (
    SELECT task.id, input.status, input.return_value, input.errors, input.run_after, input.finished_at
    FROM unnest(
        :ids::uuid[], :epochs::bigint[], :statuses::varchar[], :return_values::text[], :errors::text[],
        :run_afters::timestamptz[], :finished_ats::timestamptz[]
    ) AS input (id, lease_epoch, status, return_value, errors, run_after, finished_at)
    JOIN django_ox_oxtask AS task ON task.id = input.id AND task.lease_epoch = input.lease_epoch
    WHERE task.status || '' IN ('RUNNING', 'LOST')
    ORDER BY task.id
    FOR NO KEY UPDATE OF task
), landed AS (
    UPDATE django_ox_oxtask AS task
    SET status = held.status, errors = held.errors::jsonb,
        return_value = CASE held.status WHEN 'SUCCESSFUL' THEN held.return_value::jsonb ELSE task.return_value END,
        run_after = CASE held.status WHEN 'READY' THEN held.run_after ELSE task.run_after END,
        finished_at = CASE held.status WHEN 'READY' THEN task.finished_at ELSE held.finished_at END,
        locked_by = NULL, locked_at = NULL, lease_expires_at = NULL
    FROM held WHERE task.id = held.id
    RETURNING task.id, task.status
), unlocked AS (
    DELETE FROM oxpull_oxpulluniquelock AS unique_lock USING landed
    WHERE landed.status = 'SUCCESSFUL' AND unique_lock.task_id = landed.id
)
SELECT id FROM landed
