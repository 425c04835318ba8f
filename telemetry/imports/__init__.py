"""Other people's traces as runs of ours: one file a format, one that writes."""
