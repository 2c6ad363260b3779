"""How fast the queue is beside the bare driver: what ``oxpull-async bench`` measures, on a database of the user's."""
