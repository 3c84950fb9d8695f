"""The conditions of a group's status, one module per condition type. Pure.

Each module decides from the observed state whether its condition holds, and with which reason and
message. Nothing here calls the API or reads the clock: `condition.stamped` receives the time.
"""
