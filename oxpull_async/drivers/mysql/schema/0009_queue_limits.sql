-- Queues of which no more than so many rows run at once. Names are compared byte by byte.

-- statement
-- A claim of such a queue's rows locks its row, and counts what runs.
-- unless table: oxpull_async_queue_limit
CREATE TABLE IF NOT EXISTS oxpull_async_queue_limit (
    queue_name varbinary(512) NOT NULL PRIMARY KEY,
    places     integer        NOT NULL,
    limited_at datetime(6)    NOT NULL
);
