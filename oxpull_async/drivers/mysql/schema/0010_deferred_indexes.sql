-- Rows that aren't due yet are kept out of the way of claims, however many they are. InnoDB builds the index while others
-- go on writing.

-- statement
-- Serves a claim by task path, so that rows of another code base aren't read, however many stand ahead: rows without a
-- run_after in their order, then the others by that instant.
-- unless index: django_ox_oxtask oxpull_async_due_idx
CREATE INDEX oxpull_async_due_idx ON django_ox_oxtask (status, task_path, run_after, priority DESC, enqueued_at);

-- statement
-- Nothing reads it any more.
-- if index: django_ox_oxtask oxpull_async_claim_idx
DROP INDEX oxpull_async_claim_idx ON django_ox_oxtask;
