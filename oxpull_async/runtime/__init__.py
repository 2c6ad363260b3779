"""What moves time along: waiting, hooks, workers and their services."""
