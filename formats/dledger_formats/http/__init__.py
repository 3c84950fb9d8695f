"""The JSON pages that a member serves over HTTP: `/status`, `/leader` and `/manifest`, with the
retention that it tells. And the names of what `/files/NAME` serves.
"""
