"""The search for records of a topic in the console: through its whole logs, without a consumer."""
