"""How pages leave: the HTTP server, its routes, and what clients may ask for."""
