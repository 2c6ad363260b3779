-- name: begin
-- Sent together with the statement after it; sessions are READ COMMITTED.
BEGIN

-- name: commit
-- Sent on its own, so that a cancelled caller can't cut it off.
COMMIT

-- name: rollback
-- Ends a transaction that has found nothing to do, or has waited in vain.
ROLLBACK

-- name: pause
-- On the server, since a procedure can't; in no transaction, so nobody waits for it.
DO SLEEP(0.01)

-- name: savepoint
-- What a wait for a lock falls back to. A second one of this name replaces the first.
SAVEPOINT oxpull_wait

-- name: rollback_to_savepoint
-- Fails with 1305 where the server dropped the transaction with the wait (innodb_rollback_on_timeout).
ROLLBACK TO SAVEPOINT oxpull_wait
