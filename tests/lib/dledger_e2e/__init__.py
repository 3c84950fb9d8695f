"""Groups on a real cluster, for the end-to-end tests: what a user would do, and what one would
watch.

What belongs here: making groups, loading them, watching them, breaking them. What is right is for
the tests to say.
"""
