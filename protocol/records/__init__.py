"""Records that logs hold, declared in the language of the messages."""
