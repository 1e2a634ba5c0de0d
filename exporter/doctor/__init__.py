"""The command `doctor`: what was found on this host, what each GPU can tell, and why the rest is missing."""
