"""When, and in which process, a vendor's library is called."""
