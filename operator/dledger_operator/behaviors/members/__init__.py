"""The members of a group: their observed state, their membership, and scaling."""
