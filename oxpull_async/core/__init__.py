"""What the library decides: pure functions and values, without I/O, clock or chance."""
