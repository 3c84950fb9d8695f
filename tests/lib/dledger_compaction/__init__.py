"""Compaction without Spark or HTTP, and the naive model that it is compared with."""
