"""Client quotas in force: on requests, and on new connections."""
