"""Callers' own connections: which they are, and how the library's statements run on them."""
