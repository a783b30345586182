"""The name of a TLS client: the subject of its certificate, and the principal to which rules map it."""
