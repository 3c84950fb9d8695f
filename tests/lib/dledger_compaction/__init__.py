"""Compaction without Spark or HTTP, and the naive model with which it is compared."""
