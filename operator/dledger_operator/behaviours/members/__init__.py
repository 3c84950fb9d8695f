"""The members of a group: what is observed of them, which of them vote, and scaling them."""
