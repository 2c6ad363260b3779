-- fragment: schedule_row
-- A stored schedule. Its instants are texts: one that Python can't hold must not spoil the reading of the others.
id, name, task_key, trigger, cron, every_seconds, phase_seconds, arguments::text, enabled, boundary_for,
to_char(start_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), boundary_generation,
to_char(end_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), starting_deadline_seconds

-- name: read_change
-- One row, written by whoever changes a stored schedule.
SELECT changed_at FROM django_ox_oxschedulechange WHERE id = 1

-- name: read_schedules
-- All of them: a disabled one's boundary can be out of date too.
SELECT {{schedule_row}} FROM django_ox_oxschedule ORDER BY id

-- name: lock_schedule
-- As it is now, and stays until the tick is decided.
SELECT {{schedule_row}} FROM django_ox_oxschedule WHERE id = :schedule_id::bigint FOR UPDATE

-- name: move_boundary
-- The count tells others that the boundary was written, even if the clock reads the same.
UPDATE django_ox_oxschedule
SET start_time = :now::timestamptz, boundary_for = :boundary_for::varchar,
    boundary_generation = boundary_generation + 1
WHERE id = :schedule_id::bigint

-- name: tell_change
-- So that every other process reads the rows again.
INSERT INTO django_ox_oxschedulechange (id, changed_at) VALUES (1, :now::timestamptz)
ON CONFLICT (id) DO UPDATE SET changed_at = excluded.changed_at
