"""The demo: the life of one group on a real cluster, shown with the project's own commands.

What belongs here: the steps of the demo and its records. `tools.local_cluster` creates clusters,
and `tools.deployment` installs the operator.
"""
