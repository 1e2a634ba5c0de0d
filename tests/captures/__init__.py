"""What GPUs answer, by model: each file is one host, or a part of one, at two moments or more."""
