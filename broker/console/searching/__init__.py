"""The search for records of a topic in the console. It reads the whole logs, without a consumer."""
