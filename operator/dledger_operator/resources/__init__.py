"""Pure functions from a group, or an audit, to the objects that it consists of.

What belongs here: one file for each kind, plain dictionaries, names and labels from `names` and
`metadata`. Nothing here calls the API, reads the clock or knows what exists already.
"""
