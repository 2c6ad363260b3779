"""The algorithms of enqueueing, over the ports."""
