-- name: read_level
-- Executable comments choose what this server has: MySQL reads the first form, MariaDB the second.
SELECT /*!50702 @@transaction_isolation*/ /*M!100618 @@tx_isolation*/,
    /*!50702 'OFF'*/ /*M!100618 @@innodb_snapshot_isolation*/

-- name: show_level
-- On every server, and ten times as slow: for a MariaDB that lacks one of those variables.
SHOW VARIABLES WHERE Variable_name IN (
    'transaction_isolation', 'tx_isolation', 'innodb_snapshot_isolation'
)

-- name: read_holders
-- What the locks of these keys say, each with its holder's row where that exists. At READ COMMITTED that is
-- what is committed now, at REPEATABLE READ what the snapshot has.
SELECT unique_lock.`key`, unique_lock.task_id, {{task_row}}
FROM oxpull_oxpulluniquelock AS unique_lock
LEFT JOIN django_ox_oxtask AS task ON task.id = unique_lock.task_id
WHERE unique_lock.`key` IN :keys

-- name: lock_locks
-- As they are now, in key order, whatever the snapshot has.
SELECT `key`, task_id FROM oxpull_oxpulluniquelock WHERE `key` IN :keys ORDER BY `key` FOR UPDATE

-- name: get_turn
-- Belongs to the session and not to the transaction; waits a second at most, and then goes on without.
SELECT GET_LOCK(CONCAT('oxpull.', LEFT(SHA2(CONCAT(DATABASE(), :key), 256), 48)), 1)

-- name: end_turn
-- The next one may try the key.
SELECT RELEASE_LOCK(CONCAT('oxpull.', LEFT(SHA2(CONCAT(DATABASE(), :key), 256), 48)))

-- name: read_lock_wait
-- What bounds the session's waits for row locks, in seconds.
SELECT @@SESSION.innodb_lock_wait_timeout

-- name: set_lock_wait
-- For the session: the server knows no bound for a transaction.
SET SESSION innodb_lock_wait_timeout = :seconds

-- name: lock_task_at_once
-- Refused where another transaction has inserted or changed the row and is still open.
SELECT id FROM django_ox_oxtask WHERE id = :id FOR UPDATE NOWAIT

-- name: identify
-- Which server, and which database there.
SELECT @@hostname, @@port, @@datadir, DATABASE()
