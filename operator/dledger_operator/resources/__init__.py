"""Builders of the Kubernetes objects of a group or an audit. Pure.

Each module builds one kind as a plain dictionary, with names and labels from `names` and
`metadata`. Nothing here calls the API, reads the clock or depends on objects that already exist.
"""
