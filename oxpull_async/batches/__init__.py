"""Batches: tasks that belong together, and what is enqueued when the last of them is settled."""
