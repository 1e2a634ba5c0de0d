"""What a vendor's library and the kernel answered about a GPU: recorded on a host, and kept in a file."""
