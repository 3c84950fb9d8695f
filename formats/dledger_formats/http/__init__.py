"""The JSON pages that a member serves over HTTP: `/status`, `/leader` and `/manifest`."""
