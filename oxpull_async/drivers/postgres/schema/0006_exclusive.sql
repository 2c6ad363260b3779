-- Exclusive execution: tables of this package alone, without foreign keys, since an owner need not be a task row.

-- statement
-- One row per key: the last number drawn for it, which only grows, and the row that everybody locks who decides.
-- unless table: oxpull_async_mutex
CREATE TABLE IF NOT EXISTS oxpull_async_mutex (
    mutex_key varchar(64)  NOT NULL PRIMARY KEY,
    name      varchar(255) NOT NULL,
    number    bigint       NOT NULL,
    used_at   timestamptz  NOT NULL
);

-- statement
-- Who holds a key, and for whom a place is kept, until when. The number is the fencing token, or the place in line.
-- unless table: oxpull_async_mutex_holder
CREATE TABLE IF NOT EXISTS oxpull_async_mutex_holder (
    mutex_key   varchar(64) NOT NULL,
    number      bigint      NOT NULL,
    owner       uuid        NOT NULL,
    is_reserved boolean     NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (mutex_key, number)
);

-- statement
-- Who waits for a key, in the order of the numbers. A task's place has the run_after that its row was given, and
-- lasts as long as that row is READY; any other place is forgotten unless it's renewed.
-- unless table: oxpull_async_mutex_waiter
CREATE TABLE IF NOT EXISTS oxpull_async_mutex_waiter (
    mutex_key  varchar(64) NOT NULL,
    number     bigint      NOT NULL,
    owner      uuid        NOT NULL,
    capacity   integer     NOT NULL,
    run_after  timestamptz NULL,
    expires_at timestamptz NULL,
    PRIMARY KEY (mutex_key, number),
    UNIQUE (mutex_key, owner)
);
