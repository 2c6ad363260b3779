-- fragment: batch_row
-- A batch as the library reads it. JSON comes as text from every driver of the family.
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
SELECT {{batch_row}} FROM oxpull_oxpullbatch AS batch FORCE INDEX (oxpull_batch_sweep_idx)
WHERE batch.status = :status ORDER BY batch.created_at DESC LIMIT :limit

-- name: count_batches
-- By the index of the sweep alone, as far as it matters.
SELECT COUNT(*), MIN(page.created_at) FROM (
    SELECT created_at FROM oxpull_oxpullbatch FORCE INDEX (oxpull_batch_sweep_idx)
    WHERE status = :status ORDER BY created_at LIMIT :limit
) AS page

-- name: claim_batch
-- As it is now, whatever a snapshot has; a seal that is under way is waited for. An update that changes nothing would
-- lock the row as well, but what it counts depends on how the client has connected.
SELECT status FROM oxpull_oxpullbatch WHERE id = :batch_id FOR UPDATE

-- name: add_new_member
-- Under the claim, with its task row: that it is a member already says that an earlier try was committed.
INSERT INTO oxpull_oxpullbatchmember (task_id, created_at, batch_id) VALUES (:task_id, :added_at, :batch_id)

-- name: add_member
-- Under the claim. What is a member already stays as it is; for many rows the list after VALUES is repeated.
INSERT IGNORE INTO oxpull_oxpullbatchmember (task_id, created_at, batch_id) VALUES (:task_id, :added_at, :batch_id)

-- name: added_members
-- Those that were inserted now, told by their instant: a count of many rows isn't the same with every driver.
SELECT task_id FROM oxpull_oxpullbatchmember FORCE INDEX (oxpull_batch_member_uniq)
WHERE batch_id = :batch_id AND task_id IN :task_ids AND created_at = :added_at

-- name: members_among
-- By the unique index.
SELECT task_id, created_at FROM oxpull_oxpullbatchmember FORCE INDEX (oxpull_batch_member_uniq)
WHERE batch_id = :batch_id AND task_id IN :task_ids

-- name: seal_batch
-- Under the claim.
UPDATE oxpull_oxpullbatch SET status = 'SEALED', sealed_at = :now WHERE id = :batch_id AND status = 'OPEN'

-- name: count_members
-- A statement of its own after the seal, so that it sees what was committed while the seal waited. Only at READ
-- COMMITTED: elsewhere it would lock every member.
UPDATE oxpull_oxpullbatch
SET total_count = (SELECT COUNT(*) FROM oxpull_oxpullbatchmember WHERE batch_id = :batch_id)
WHERE id = :batch_id AND status = 'SEALED' AND total_count IS NULL

-- name: get_total
-- What count_members has written.
SELECT total_count FROM oxpull_oxpullbatch WHERE id = :batch_id

-- name: tally
-- Each member's row is looked up by its key.
SELECT task.status, COUNT(*), MAX(CASE WHEN task.status NOT IN {{settled}} THEN member.task_id END)
FROM oxpull_oxpullbatchmember AS member FORCE INDEX (oxpull_batch_member_uniq)
LEFT JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = member.task_id
WHERE member.batch_id = :batch_id
GROUP BY task.status

-- name: find_highest_pending
-- Each member's row is looked up by its key.
SELECT MAX(member.task_id)
FROM oxpull_oxpullbatchmember AS member FORCE INDEX (oxpull_batch_member_uniq)
STRAIGHT_JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = member.task_id
WHERE member.batch_id = :batch_id AND task.status NOT IN {{settled}}

-- name: read_members
-- A page by the unique index; its last member comes whatever its status, so that the next page can follow it.
WITH page AS (
    SELECT task_id, created_at FROM oxpull_oxpullbatchmember FORCE INDEX (oxpull_batch_member_uniq)
    WHERE batch_id = :batch_id AND task_id > :above
    ORDER BY task_id LIMIT :limit
)
SELECT page.task_id, page.created_at, {{task_row}}
FROM page LEFT JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = page.task_id
WHERE :any_status OR task.status IN :statuses OR page.task_id = (SELECT MAX(task_id) FROM page)
ORDER BY page.task_id

-- name: scan_members
-- A page by the unique index, downwards; each row is looked up by its key.
SELECT MAX(CASE WHEN task.status NOT IN {{settled}} THEN page.task_id END), MIN(page.task_id)
FROM (
    SELECT task_id FROM oxpull_oxpullbatchmember FORCE INDEX (oxpull_batch_member_uniq)
    WHERE batch_id = :batch_id AND task_id < :below
    ORDER BY task_id DESC LIMIT :limit
) AS page
LEFT JOIN django_ox_oxtask AS task FORCE INDEX (PRIMARY) ON task.id = page.task_id

-- name: list_sealed
-- By the index of the reference's own sweep, the oldest first.
SELECT {{sealed_row}} FROM oxpull_oxpullbatch AS batch FORCE INDEX (oxpull_batch_sweep_idx)
WHERE batch.status = 'SEALED' AND batch.created_at >= :created_at
    AND (batch.created_at > :created_at OR batch.id > :batch_id)
ORDER BY batch.created_at, batch.id LIMIT :limit

-- name: get_sealed
-- By primary key.
SELECT {{sealed_row}} FROM oxpull_oxpullbatch AS batch WHERE batch.id = :batch_id AND batch.status = 'SEALED'

-- name: find_pending
-- The witnesses of all batches at once, by primary key.
SELECT id FROM django_ox_oxtask FORCE INDEX (PRIMARY) WHERE id IN :ids AND status NOT IN {{settled}}

-- name: mark_complete
-- Under the claim: of all reconcilers one goes on.
UPDATE oxpull_oxpullbatch SET status = 'COMPLETE', completed_at = :now WHERE id = :batch_id AND status = 'SEALED'

-- name: write_ending
-- In the transaction of mark_complete.
UPDATE oxpull_oxpullbatch
SET total_count = :total_count, failed_count = :failed_count, callback_task_id = :callback_task_id,
    success_task_id = :success_task_id
WHERE id = :batch_id

-- name: take_role
-- Ours if it has run out, or is ours already. An expiry further ahead than a lease is long was written by a clock that
-- has been set back since.
UPDATE oxpull_async_leader
SET holder = :holder, expires_at = TIMESTAMPADD(MICROSECOND, :lease_microseconds, UTC_TIMESTAMP(6))
WHERE role = :role AND (
    holder = :holder OR expires_at < UTC_TIMESTAMP(6)
    OR expires_at > TIMESTAMPADD(MICROSECOND, :lease_microseconds, UTC_TIMESTAMP(6))
)

-- name: read_lease
-- Whose the role is, and for how many microseconds more.
SELECT holder, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) FROM oxpull_async_leader WHERE role = :role

-- name: insert_role
-- Nobody has had it yet, unless another is quicker.
INSERT IGNORE INTO oxpull_async_leader (role, holder, expires_at)
VALUES (:role, :holder, TIMESTAMPADD(MICROSECOND, :lease_microseconds, UTC_TIMESTAMP(6)))

-- name: stand_down
-- The next one needn't wait for the lease to run out.
DELETE FROM oxpull_async_leader WHERE role = :role AND holder = :holder

-- name: last_led
-- Rows stay where they are when a process dies: the latest says when somebody last did the job.
SELECT MAX(expires_at) FROM oxpull_async_leader WHERE LEFT(role, CHAR_LENGTH(:role)) = :role

-- name: find_prunable_batches
-- By the index of the sweep: what was completed before an instant was created before it.
SELECT id FROM oxpull_oxpullbatch FORCE INDEX (oxpull_batch_sweep_idx)
WHERE status = 'COMPLETE' AND created_at < :completed_before AND completed_at < :completed_before
ORDER BY created_at LIMIT :limit

-- name: delete_members
-- By the unique index.
DELETE FROM oxpull_oxpullbatchmember WHERE batch_id = :batch_id ORDER BY task_id LIMIT :limit

-- name: delete_batch
-- The foreign key has no action of its own, so members go first.
DELETE FROM oxpull_oxpullbatch WHERE id = :batch_id
