-- name: insert_task
-- Names every NOT NULL column: the tables have no defaults.
INSERT INTO django_ox_oxtask (
    id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
    run_after, attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch
) VALUES (
    :id::uuid, :task_path::varchar, :args::text::jsonb, :kwargs::text::jsonb, :queue_name::varchar,
    :priority::smallint, :takes_context::boolean, :backend_name::varchar, 'READY',
    :run_after::timestamptz, 0, :max_attempts::smallint, '[]', '[]', :enqueued_at::timestamptz, 0
) {{told}}

-- name: insert_tasks
-- One array per column: the number of parameters stays the same however many rows there are.
INSERT INTO django_ox_oxtask (
    id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
    run_after, attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch
)
SELECT id, task_path, args::jsonb, kwargs::jsonb, queue_name, priority, takes_context, backend_name,
    'READY', run_after, 0, max_attempts, '[]', '[]', enqueued_at, 0
FROM unnest(
    :ids::uuid[], :task_paths::varchar[], :args::text[], :kwargs::text[], :queue_names::varchar[],
    :priorities::smallint[], :takes_contexts::boolean[], :backend_names::varchar[],
    :run_afters::timestamptz[], :max_attempts::smallint[], :enqueued_ats::timestamptz[]
) AS input (
    id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, run_after,
    max_attempts, enqueued_at
) {{told}}

-- name: get_task
-- By primary key.
SELECT {{task_row}} FROM django_ox_oxtask AS task WHERE task.id = :id::uuid

-- name: get_tasks
-- By primary key, many at once.
SELECT {{task_row}} FROM django_ox_oxtask AS task WHERE task.id = ANY(:ids::uuid[])

-- name: list_tasks
-- A page of all rows, in the order of the primary key.
SELECT {{task_row}} FROM django_ox_oxtask AS task WHERE task.id > :after_id::uuid ORDER BY task.id LIMIT :limit::int
