"""The name of a TLS client: the subject of its certificate, and its mapping to a principal."""
