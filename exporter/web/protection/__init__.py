"""Who may ask: the file of `--web.config.file`, and what is made of it."""
