"""Other frameworks: what their projects need beside the library itself."""
