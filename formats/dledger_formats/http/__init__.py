"""The JSON pages that a member serves over HTTP: `/status`, `/leader` and `/manifest`, with the
retention that it reports; and the names of the files that `/files/NAME` serves.
"""
