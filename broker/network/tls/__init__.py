"""TLS: key and trust stores, contexts that are renewed when files change, and the byte stream of one connection."""
