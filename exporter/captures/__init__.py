"""What a vendor's library and the kernel answered about a GPU: recorded on a host, kept in a file, and replayed."""
