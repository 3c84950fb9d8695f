"""The operator's control loops: observe, decide (pure functions), act through `clients`.

Nothing here depends on kopf; `handlers` forwards the watch events.
"""
