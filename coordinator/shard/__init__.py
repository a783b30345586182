"""The machine over one partition of `__consumer_offsets`: groups of all kinds and their offsets."""
