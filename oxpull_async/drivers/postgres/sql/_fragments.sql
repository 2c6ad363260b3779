-- fragment: task_row
-- A task row as the library reads it. JSON as text: a caller's connection may have codecs of its own.
task.id, task.task_path, task.args::text, task.kwargs::text, task.queue_name, task.priority,
task.takes_context, task.backend_name, task.status, task.run_after, task.attempts, task.max_attempts,
task.return_value::text, task.errors::text, task.worker_ids::text, task.enqueued_at, task.started_at,
task.last_attempted_at, task.finished_at, task.locked_by, task.locked_at, task.lease_expires_at,
task.lease_epoch

-- fragment: is_open
-- A queue that neither this claim passes over nor anybody has paused. The list is read once for each statement.
queue_name <> ALL(:passed_queues::varchar[]) AND queue_name <> ALL(ARRAY(SELECT queue_name FROM oxpull_async_paused_queue))
