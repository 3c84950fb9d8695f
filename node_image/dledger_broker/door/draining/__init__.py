"""How a member sends its clients elsewhere when it stops, or is cut off from the others."""
