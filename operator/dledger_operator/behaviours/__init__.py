"""What the operator does, one file for each behaviour: gather, decide (pure), act.

What belongs here: the decisions, and the loops that carry them out through `clients`. Nothing here
knows kopf; `handlers` tells the behaviours what changed.
"""
