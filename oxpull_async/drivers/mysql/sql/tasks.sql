-- name: insert_task
-- Names every NOT NULL column: the tables have no defaults. For many rows the list after VALUES is repeated.
INSERT INTO django_ox_oxtask (
    id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
    run_after, attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch
) VALUES (
    :id, :task_path, :args, :kwargs, :queue_name, :priority, :takes_context, :backend_name, 'READY',
    :run_after, 0, :max_attempts, '[]', '[]', :enqueued_at, 0
)

-- name: get_task
-- By primary key.
SELECT {{task_row}} FROM django_ox_oxtask AS task WHERE task.id = :id

-- name: get_tasks
-- By primary key, many at once.
SELECT {{task_row}} FROM django_ox_oxtask AS task WHERE task.id IN :ids

-- name: list_tasks
-- A page of all rows, in the order of the primary key.
SELECT {{task_row}} FROM django_ox_oxtask AS task WHERE task.id > :after_id ORDER BY task.id LIMIT :limit
