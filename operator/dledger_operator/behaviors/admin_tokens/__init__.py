"""Creating and replacing the administration tokens of groups, and sending them to leaders."""
