-- fragment: schedule_row
-- A stored schedule. Its columns are taken as they are, for SQLite keeps anything in any of them.
id, name, task_key, "trigger", cron, every_seconds, phase_seconds, arguments, enabled, boundary_for,
start_time, boundary_generation, end_time, starting_deadline_seconds

-- name: read_change
-- One row, written by whoever changes a stored schedule.
SELECT changed_at FROM django_ox_oxschedulechange WHERE id = 1

-- name: read_schedules
-- All of them: a disabled one's boundary can be out of date too.
SELECT {{schedule_row}} FROM django_ox_oxschedule ORDER BY id

-- name: lock_schedule
-- As it is now, and stays until the tick is decided: the transaction holds the file's write lock.
SELECT {{schedule_row}} FROM django_ox_oxschedule WHERE id = :schedule_id

-- name: move_boundary
-- The count tells others that the boundary was written, even if the clock reads the same.
UPDATE django_ox_oxschedule
SET start_time = :now, boundary_for = :boundary_for, boundary_generation = boundary_generation + 1
WHERE id = :schedule_id

-- name: tell_change
-- So that every other process reads the rows again.
INSERT INTO django_ox_oxschedulechange (id, changed_at) VALUES (1, :now)
ON CONFLICT (id) DO UPDATE SET changed_at = excluded.changed_at
