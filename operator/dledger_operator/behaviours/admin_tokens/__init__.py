"""The administration tokens of groups: made, replaced, and sent with requests to leaders."""
