-- fragment: batch_row
-- A batch as the library reads it.
batch.id, batch.name, batch.status, batch.total_count, batch.on_complete_path, batch.on_complete_args,
batch.on_complete_kwargs, batch.on_success_path, batch.on_success_args, batch.on_success_kwargs,
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
    :id, :name, 'OPEN', :on_complete_path, :on_complete_args, :on_complete_kwargs, :on_success_path,
    :on_success_args, :on_success_kwargs, :created_at
)

-- name: get_batch
-- By primary key.
SELECT {{batch_row}} FROM oxpull_oxpullbatch AS batch WHERE batch.id = :batch_id

-- name: list_batches
-- By the index of the sweep, the newest first.
SELECT {{batch_row}} FROM oxpull_oxpullbatch AS batch
WHERE batch.status = :status ORDER BY batch.created_at DESC LIMIT :limit

-- name: count_batches
-- By the index of the sweep alone, as far as it matters.
SELECT COUNT(*), MIN(page.created_at) FROM (
    SELECT created_at FROM oxpull_oxpullbatch
    WHERE status = :status ORDER BY created_at LIMIT :limit
) AS page

-- name: get_status
-- By primary key.
SELECT status FROM oxpull_oxpullbatch WHERE id = :batch_id

-- name: claim_batch
-- An update that changes nothing: in a caller's transaction it takes the file's write lock before anything is decided.
UPDATE oxpull_oxpullbatch SET status = 'OPEN' WHERE id = :batch_id AND status = 'OPEN'

-- name: add_members
-- Memberships of task rows that exist, under the claim; what comes back are those that were no members yet.
INSERT INTO oxpull_oxpullbatchmember (task_id, created_at, batch_id)
SELECT value, :added_at, :batch_id FROM json_each(:task_ids) WHERE true
ON CONFLICT (batch_id, task_id) DO NOTHING
RETURNING task_id

-- name: members_among
-- By the unique index.
SELECT task_id, created_at FROM oxpull_oxpullbatchmember
WHERE batch_id = :batch_id AND task_id IN (SELECT value FROM json_each(:task_ids))

-- name: seal_batch
-- Compare-and-set.
UPDATE oxpull_oxpullbatch SET status = 'SEALED', sealed_at = :now WHERE id = :batch_id AND status = 'OPEN'

-- name: count_members
-- Who has written reads what is committed, so that the count is current in a caller's transaction too.
UPDATE oxpull_oxpullbatch
SET total_count = (SELECT count(*) FROM oxpull_oxpullbatchmember WHERE batch_id = :batch_id)
WHERE id = :batch_id AND status = 'SEALED' AND total_count IS NULL
RETURNING total_count

-- name: tally
-- Each member's row is looked up by its key.
SELECT task.status, count(*),
    max(CASE WHEN task.status NOT IN {{settled}} THEN member.task_id END)
FROM oxpull_oxpullbatchmember AS member
LEFT JOIN django_ox_oxtask AS task ON task.id = member.task_id
WHERE member.batch_id = :batch_id
GROUP BY task.status

-- name: find_highest_pending
-- Each member's row is looked up by its key.
SELECT max(member.task_id)
FROM oxpull_oxpullbatchmember AS member CROSS JOIN django_ox_oxtask AS task ON task.id = member.task_id
WHERE member.batch_id = :batch_id AND +task.status NOT IN {{settled}}

-- name: read_members
-- A page by the unique index; its last member comes whatever its status, so that the next page can follow it.
WITH page AS MATERIALIZED (
    SELECT task_id, created_at FROM oxpull_oxpullbatchmember
    WHERE batch_id = :batch_id AND task_id > :above
    ORDER BY task_id LIMIT :limit
)
SELECT page.task_id, page.created_at, {{task_row}}
FROM page LEFT JOIN django_ox_oxtask AS task ON task.id = page.task_id
WHERE :any_status OR task.status IN (SELECT value FROM json_each(:statuses))
    OR page.task_id = (SELECT max(task_id) FROM page)
ORDER BY page.task_id

-- name: scan_members
-- A page by the unique index, downwards; each row is looked up by its key.
SELECT max(CASE WHEN task.status NOT IN {{settled}} THEN page.task_id END), min(page.task_id)
FROM (
    SELECT task_id FROM oxpull_oxpullbatchmember
    WHERE batch_id = :batch_id AND task_id < :below
    ORDER BY task_id DESC LIMIT :limit
) AS page
LEFT JOIN django_ox_oxtask AS task ON task.id = page.task_id

-- name: list_sealed
-- By the index of the reference's own sweep, the oldest first.
SELECT {{sealed_row}} FROM oxpull_oxpullbatch AS batch
WHERE batch.status = 'SEALED' AND batch.created_at >= :created_at
    AND (batch.created_at > :created_at OR batch.id > :batch_id)
ORDER BY batch.created_at, batch.id LIMIT :limit

-- name: get_sealed
-- By primary key.
SELECT {{sealed_row}} FROM oxpull_oxpullbatch AS batch WHERE batch.id = :batch_id AND batch.status = 'SEALED'

-- name: find_pending
-- The witnesses of all batches at once, by primary key.
SELECT id FROM django_ox_oxtask
WHERE id IN (SELECT value FROM json_each(:ids)) AND +status NOT IN {{settled}}

-- name: mark_complete
-- Compare-and-set: of all reconcilers one goes on.
UPDATE oxpull_oxpullbatch SET status = 'COMPLETE', completed_at = :now
WHERE id = :batch_id AND status = 'SEALED'
RETURNING total_count

-- name: write_ending
-- In the transaction of mark_complete.
UPDATE oxpull_oxpullbatch
SET total_count = :total_count, failed_count = :failed_count, callback_task_id = :callback_task_id,
    success_task_id = :success_task_id
WHERE id = :batch_id

-- name: lead
-- Ours if it's free, run out, or ours already. An expiry further ahead than a lease is long was written by a clock that
-- has been set back since.
INSERT INTO oxpull_async_leader (role, holder, expires_at) VALUES (:role, :holder, {{lease_end}})
ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
WHERE oxpull_async_leader.holder = excluded.holder OR oxpull_async_leader.expires_at < {{database_now}}
    OR oxpull_async_leader.expires_at > excluded.expires_at

-- name: read_lease
-- Whose the role is, and for how many seconds more.
SELECT holder, (julianday(expires_at) - julianday('now')) * 86400 FROM oxpull_async_leader WHERE role = :role

-- name: stand_down
-- The next one needn't wait for the lease to run out.
DELETE FROM oxpull_async_leader WHERE role = :role AND holder = :holder

-- name: last_led
-- Rows stay where they are when a process dies: the latest says when somebody last did the job.
SELECT max(expires_at) FROM oxpull_async_leader WHERE substr(role, 1, length(:role)) = :role

-- name: find_prunable_batches
-- By the index of the sweep: what was completed before an instant was created before it.
SELECT id FROM oxpull_oxpullbatch
WHERE status = 'COMPLETE' AND created_at < :completed_before AND completed_at < :completed_before
ORDER BY created_at LIMIT :limit

-- name: lock_complete
-- Stays true until the end of the transaction, which holds the file's write lock.
SELECT id FROM oxpull_oxpullbatch WHERE id = :batch_id AND status = 'COMPLETE'

-- name: delete_members
-- By the unique index.
DELETE FROM oxpull_oxpullbatchmember WHERE id IN (
    SELECT id FROM oxpull_oxpullbatchmember WHERE batch_id = :batch_id ORDER BY task_id LIMIT :limit
)

-- name: delete_batch
-- The foreign key has no action of its own, so members go first.
DELETE FROM oxpull_oxpullbatch WHERE id = :batch_id
