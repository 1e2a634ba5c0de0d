"""What goes on in the daemon beside the readings: pages, reloads, signs of life, and what is said of changes."""
