-- name: newest_ticks
-- The bound makes a range in the index of each schedule; without it all of history would be read.
SELECT schedule_name, max(scheduled_for) FROM django_ox_oxscheduletick
WHERE schedule_name = ANY(:keys::varchar[]) AND scheduled_for >= :since::timestamptz
GROUP BY schedule_name

-- name: insert_tick
-- Waits for a competitor that has inserted the same tick and not committed; the unique pair lets one of them have it.
INSERT INTO django_ox_oxscheduletick (schedule_name, scheduled_for, created_at)
VALUES (:key::varchar, :scheduled_for::timestamptz, :created_at::timestamptz)
ON CONFLICT (schedule_name, scheduled_for) DO NOTHING
RETURNING id

-- name: earliest_other
-- The first tick in the log, the transaction's own ones left out.
SELECT scheduled_for FROM django_ox_oxscheduletick
WHERE schedule_name = :key::varchar AND scheduled_for <> ALL(:own::timestamptz[])
ORDER BY scheduled_for LIMIT 1

-- name: delete_tick
-- A latch, which is never committed.
DELETE FROM django_ox_oxscheduletick
WHERE schedule_name = :key::varchar AND scheduled_for = :scheduled_for::timestamptz

-- name: assign_task
-- The row that the tick has enqueued, or found pending.
UPDATE django_ox_oxscheduletick SET task_id = :task_id::uuid
WHERE schedule_name = :key::varchar AND scheduled_for = :scheduled_for::timestamptz
