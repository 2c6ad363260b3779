-- Queues of which no more than so many rows run at once.

-- statement
-- A claim of such a queue's rows locks its row, and counts what runs.
-- unless table: oxpull_async_queue_limit
CREATE TABLE IF NOT EXISTS oxpull_async_queue_limit (
    queue_name varchar(128) NOT NULL PRIMARY KEY,
    places     integer      NOT NULL,
    limited_at datetime     NOT NULL
);
