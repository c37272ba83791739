"""Schema migrations of the record."""
