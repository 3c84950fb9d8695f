"""Reading entries: single entries, ranges with read-ahead, and following the end of the log."""
