"""When a member lets its clients go elsewhere: it stops, or is cut off from the others."""
