-- fragment: batch_row
-- A batch as the library reads it. JSON as text: a caller's connection may have codecs of its own.
batch.id, batch.name, batch.status, batch.total_count, batch.on_complete_path, batch.on_complete_args::text,
batch.on_complete_kwargs::text, batch.on_success_path, batch.on_success_args::text, batch.on_success_kwargs::text,
batch.failed_count, batch.callback_task_id, batch.success_task_id, batch.created_at, batch.sealed_at,
batch.completed_at

-- fragment: sealed_row
-- What the reconciler has to know of a batch.
batch.id, batch.on_complete_path, batch.on_success_path, batch.total_count IS NOT NULL, batch.created_at

-- fragment: settled
-- A member with any other status holds its batch open, also with one that nobody knows.
('SUCCESSFUL', 'FAILED', 'LOST', 'DISCARDED')

-- name: insert_batch
-- Names every NOT NULL column: the tables have no defaults.
INSERT INTO oxpull_oxpullbatch (
    id, name, status, on_complete_path, on_complete_args, on_complete_kwargs, on_success_path, on_success_args,
    on_success_kwargs, created_at
) VALUES (
    :id::uuid, :name::varchar, 'OPEN', :on_complete_path::varchar, :on_complete_args::text::jsonb,
    :on_complete_kwargs::text::jsonb, :on_success_path::varchar, :on_success_args::text::jsonb,
    :on_success_kwargs::text::jsonb, :created_at::timestamptz
)

-- name: get_batch
-- By primary key.
SELECT {{batch_row}} FROM oxpull_oxpullbatch AS batch WHERE batch.id = :batch_id::uuid

-- name: list_batches
-- By the index of the sweep, the newest first.
SELECT {{batch_row}} FROM oxpull_oxpullbatch AS batch
WHERE batch.status = :status::varchar ORDER BY batch.created_at DESC LIMIT :limit::int

-- name: count_batches
-- By the index of the sweep alone, as far as it matters.
SELECT COUNT(*), MIN(page.created_at) FROM (
    SELECT created_at FROM oxpull_oxpullbatch
    WHERE status = :status::varchar ORDER BY created_at LIMIT :limit::int
) AS page

-- name: get_status
-- By primary key.
SELECT status FROM oxpull_oxpullbatch WHERE id = :batch_id::uuid

-- name: claim_batch
-- As everybody claims it who adds or seals: an update that changes nothing.
UPDATE oxpull_oxpullbatch SET status = 'OPEN' WHERE id = :batch_id::uuid AND status = 'OPEN' RETURNING id

-- name: add_tasks
-- Tasks and members while the batch is held OPEN, in one statement. The batch is claimed by an update that changes
-- nothing: it waits for a seal that is under way, and gives the row a new version, by which a seal in an older snapshot
-- learns that it can't count these members. A share lock would leave no version.
WITH bound AS MATERIALIZED (
    SELECT set_config(
        'lock_timeout', COALESCE(:lock_timeout::text, current_setting('lock_timeout')), true
    ) AS lock_timeout
), claimed AS (
    UPDATE oxpull_oxpullbatch AS batch SET status = 'OPEN'
    FROM bound WHERE batch.id = :batch_id::uuid AND batch.status = 'OPEN' AND bound.lock_timeout IS NOT NULL
    RETURNING batch.id
), input AS MATERIALIZED (
    SELECT input.* FROM claimed CROSS JOIN unnest(
        :ids::uuid[], :task_paths::varchar[], :args::text[], :kwargs::text[], :queue_names::varchar[],
        :priorities::smallint[], :takes_contexts::boolean[], :backend_names::varchar[],
        :run_afters::timestamptz[], :max_attempts::smallint[], :enqueued_ats::timestamptz[]
    ) AS input (
        id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, run_after,
        max_attempts, enqueued_at
    )
), new_task AS (
    INSERT INTO django_ox_oxtask (
        id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status,
        run_after, attempts, max_attempts, errors, worker_ids, enqueued_at, lease_epoch
    )
    SELECT id, task_path, args::jsonb, kwargs::jsonb, queue_name, priority, takes_context, backend_name,
        'READY', run_after, 0, max_attempts, '[]', '[]', enqueued_at, 0
    FROM input
    {{told}}
), new_member AS (
    INSERT INTO oxpull_oxpullbatchmember (task_id, created_at, batch_id)
    SELECT id, :added_at::timestamptz, :batch_id::uuid FROM input
)
SELECT id FROM claimed

-- name: add_members
-- Memberships of task rows that exist, in the order of their ids, under the same claim. What comes back is whether the
-- batch was claimed, and each id that was no member yet.
WITH claimed AS (
    UPDATE oxpull_oxpullbatch SET status = 'OPEN' WHERE id = :batch_id::uuid AND status = 'OPEN' RETURNING id
), added AS (
    INSERT INTO oxpull_oxpullbatchmember (task_id, created_at, batch_id)
    SELECT input.task_id, :added_at::timestamptz, claimed.id
    FROM claimed CROSS JOIN unnest(:task_ids::uuid[]) AS input (task_id)
    ORDER BY input.task_id
    ON CONFLICT (batch_id, task_id) DO NOTHING
    RETURNING task_id
)
SELECT (SELECT true FROM claimed), added.task_id FROM (SELECT 1) AS one LEFT JOIN added ON true

-- name: members_among
-- By the unique index.
SELECT task_id, created_at FROM oxpull_oxpullbatchmember WHERE batch_id = :batch_id::uuid AND task_id = ANY(:task_ids::uuid[])

-- name: seal_batch
-- Compare-and-set; it waits for additions that are under way.
WITH bound AS MATERIALIZED (
    SELECT set_config(
        'lock_timeout', COALESCE(:lock_timeout::text, current_setting('lock_timeout')), true
    ) AS lock_timeout
)
UPDATE oxpull_oxpullbatch AS batch SET status = 'SEALED', sealed_at = :now::timestamptz
FROM bound WHERE batch.id = :batch_id::uuid AND batch.status = 'OPEN' AND bound.lock_timeout IS NOT NULL
RETURNING batch.id

-- name: count_members
-- A statement of its own after the seal, so that it sees what was committed while the seal waited.
UPDATE oxpull_oxpullbatch
SET total_count = (SELECT count(*) FROM oxpull_oxpullbatchmember WHERE batch_id = :batch_id::uuid)
WHERE id = :batch_id::uuid AND status = 'SEALED' AND total_count IS NULL
RETURNING total_count

-- name: count_up_to
-- How wide a batch is, as far as it matters.
SELECT count(*) FROM (
    SELECT 1 FROM oxpull_oxpullbatchmember WHERE batch_id = :batch_id::uuid LIMIT :limit::int
) AS member

-- name: tally
-- Each member's row is looked up by its key: a free join would read the whole task table, however narrow the batch.
SELECT task.status, count(*),
    max(member.task_id::text) FILTER (WHERE task.status IS NOT NULL AND task.status NOT IN {{settled}})
FROM oxpull_oxpullbatchmember AS member
LEFT JOIN LATERAL (SELECT status FROM django_ox_oxtask WHERE id = member.task_id OFFSET 0) AS task ON true
WHERE member.batch_id = :batch_id::uuid
GROUP BY task.status

-- name: tally_wide
-- For a wide batch the free join is the cheaper one, and nothing is carried along that a sort would have to move.
SELECT task.status, count(*)
FROM oxpull_oxpullbatchmember AS member
LEFT JOIN django_ox_oxtask AS task ON task.id = member.task_id
WHERE member.batch_id = :batch_id::uuid
GROUP BY task.status

-- name: find_highest_pending
-- For a wide batch alone: what is pending is found by a scan of all tasks, and there are few of those by now.
SELECT max(member.task_id::text)
FROM django_ox_oxtask AS task
JOIN oxpull_oxpullbatchmember AS member ON member.task_id = task.id AND member.batch_id = :batch_id::uuid
WHERE task.status NOT IN {{settled}}

-- name: read_members
-- A page by the unique index; its last member comes whatever its status, so that the next page can follow it.
WITH page AS MATERIALIZED (
    SELECT task_id, created_at FROM oxpull_oxpullbatchmember
    WHERE batch_id = :batch_id::uuid AND task_id > :above::uuid
    ORDER BY task_id LIMIT :limit::int
)
SELECT page.task_id, page.created_at, {{task_row}}
FROM page LEFT JOIN django_ox_oxtask AS task ON task.id = page.task_id
WHERE :any_status::boolean OR task.status = ANY(:statuses::varchar[])
    OR page.task_id = (SELECT task_id FROM page ORDER BY task_id DESC LIMIT 1)
ORDER BY page.task_id

-- name: scan_members
-- A page by the unique index, downwards; each row is looked up by its key, whatever the statistics say of its status. In
-- pieces of 100: of a batch that is newer than the statistics all members would be read and sorted for a page at once.
WITH RECURSIVE piece AS (
    SELECT 100 AS read, ARRAY(
        SELECT task_id FROM oxpull_oxpullbatchmember
        WHERE batch_id = :batch_id::uuid AND task_id < :below::uuid
        ORDER BY task_id DESC LIMIT 100
    ) AS ids
    UNION ALL
    SELECT piece.read + 100, ARRAY(
        SELECT task_id FROM oxpull_oxpullbatchmember
        WHERE batch_id = :batch_id::uuid AND task_id < piece.ids[100]
        ORDER BY task_id DESC LIMIT 100
    )
    FROM piece WHERE piece.read < :limit::int AND piece.ids[100] IS NOT NULL
), page AS MATERIALIZED (
    SELECT member.task_id FROM piece CROSS JOIN unnest(piece.ids) AS member (task_id)
    ORDER BY member.task_id DESC LIMIT :limit::int
)
SELECT (
        SELECT page.task_id
        FROM page CROSS JOIN LATERAL (
            SELECT 1 FROM django_ox_oxtask WHERE id = page.task_id AND status NOT IN {{settled}} OFFSET 0
        ) AS task
        ORDER BY page.task_id DESC LIMIT 1
    ), (SELECT task_id FROM page ORDER BY task_id LIMIT 1)

-- name: list_sealed
-- By the index of the reference's own sweep, the oldest first.
SELECT {{sealed_row}} FROM oxpull_oxpullbatch AS batch
WHERE batch.status = 'SEALED' AND batch.created_at >= :created_at::timestamptz
    AND (batch.created_at > :created_at::timestamptz OR batch.id > :batch_id::uuid)
ORDER BY batch.created_at, batch.id LIMIT :limit::int

-- name: get_sealed
-- By primary key.
SELECT {{sealed_row}} FROM oxpull_oxpullbatch AS batch WHERE batch.id = :batch_id::uuid AND batch.status = 'SEALED'

-- name: find_pending
-- The witnesses of all batches at once, by primary key.
SELECT id FROM django_ox_oxtask WHERE id = ANY(:ids::uuid[]) AND status NOT IN {{settled}}

-- name: mark_complete
-- Compare-and-set: of all reconcilers one goes on. Its count is the next statement, with a snapshot of its own.
UPDATE oxpull_oxpullbatch SET status = 'COMPLETE', completed_at = :now::timestamptz
WHERE id = :batch_id::uuid AND status = 'SEALED'
RETURNING total_count

-- name: write_ending
-- In the transaction of mark_complete.
UPDATE oxpull_oxpullbatch
SET total_count = :total_count::int, failed_count = :failed_count::int, callback_task_id = :callback_task_id::uuid,
    success_task_id = :success_task_id::uuid
WHERE id = :batch_id::uuid

-- name: lead
-- Ours if it's free, run out, or ours already. An expiry further ahead than a lease is long was written by a clock that
-- has been set back since.
WITH ours AS (
    INSERT INTO oxpull_async_leader AS leader (role, holder, expires_at)
    VALUES (
        :role::varchar, :holder::varchar, STATEMENT_TIMESTAMP() + make_interval(secs => :lease_seconds::float8)
    )
    ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
    WHERE leader.holder = excluded.holder OR leader.expires_at < STATEMENT_TIMESTAMP()
        OR leader.expires_at > excluded.expires_at
    RETURNING role
)
SELECT (SELECT true FROM ours), (
    SELECT extract(epoch FROM expires_at - STATEMENT_TIMESTAMP())::float8
    FROM oxpull_async_leader WHERE role = :role::varchar
)

-- name: stand_down
-- The next one needn't wait for the lease to run out.
DELETE FROM oxpull_async_leader WHERE role = :role::varchar AND holder = :holder::varchar RETURNING role

-- name: last_led
-- Rows stay where they are when a process dies: the latest says when somebody last did the job.
SELECT max(expires_at) FROM oxpull_async_leader WHERE starts_with(role, :role::text)

-- name: find_prunable_batches
-- By the index of the sweep: what was completed before an instant was created before it.
SELECT id FROM oxpull_oxpullbatch
WHERE status = 'COMPLETE' AND created_at < :completed_before::timestamptz
    AND completed_at < :completed_before::timestamptz
ORDER BY created_at LIMIT :limit::int

-- name: lock_complete
-- One pruner at a time: another's members would look like the batch's last.
SELECT id FROM oxpull_oxpullbatch WHERE id = :batch_id::uuid AND status = 'COMPLETE' FOR UPDATE

-- name: delete_members
-- In the order of their ids, by the unique index. An array, so that the inner statement runs once.
DELETE FROM oxpull_oxpullbatchmember WHERE id = ANY(ARRAY(
    SELECT id FROM oxpull_oxpullbatchmember WHERE batch_id = :batch_id::uuid ORDER BY task_id LIMIT :limit::int
))
RETURNING task_id

-- name: delete_batch
-- The foreign key has no action of its own, so members go first.
DELETE FROM oxpull_oxpullbatch WHERE id = :batch_id::uuid RETURNING id
