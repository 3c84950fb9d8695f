"""Reading entries: one by one, in ranges with read-ahead, and following the log's end."""
