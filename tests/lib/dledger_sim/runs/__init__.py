"""Runs: one seed or tape from start to end, campaigns of many, and what they leave behind."""
