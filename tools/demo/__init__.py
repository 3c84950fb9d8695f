"""The demo: one group's story on a real cluster, told with the project's own commands.

What belongs here: the story and its records. How a cluster is made, and how the operator gets
there, is `tools.local_cluster` and `tools.deployment`.
"""
