-- name: newest_ticks
-- The bound makes a range in the index of each schedule; without it all of history would be read.
SELECT schedule_name, max(scheduled_for) FROM django_ox_oxscheduletick
WHERE schedule_name IN (SELECT value FROM json_each(:keys)) AND scheduled_for >= :since
GROUP BY schedule_name

-- name: insert_tick
-- The unique pair lets one transaction have the tick; the file's write lock has them come one after another.
INSERT INTO django_ox_oxscheduletick (schedule_name, scheduled_for, created_at)
VALUES (:key, :scheduled_for, :created_at)
ON CONFLICT (schedule_name, scheduled_for) DO NOTHING
RETURNING id

-- name: earliest_other
-- The first tick in the log, the transaction's own one left out.
SELECT scheduled_for FROM django_ox_oxscheduletick
WHERE schedule_name = :key AND scheduled_for <> :scheduled_for
ORDER BY scheduled_for LIMIT 1

-- name: assign_task
-- The row that the tick has enqueued, or found pending.
UPDATE django_ox_oxscheduletick SET task_id = :task_id
WHERE schedule_name = :key AND scheduled_for = :scheduled_for
