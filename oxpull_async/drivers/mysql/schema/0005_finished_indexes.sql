-- Indexes of this package on the reference's tables. InnoDB builds them while others go on writing.

-- statement
-- Finds what was settled lately, for statistics, and what was settled long ago, for pruning.
-- unless index: django_ox_oxtask oxpull_async_finished_idx
CREATE INDEX oxpull_async_finished_idx ON django_ox_oxtask (finished_at);
