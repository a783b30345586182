"""TLS: stores of keys and certificates, contexts that follow their files, and the byte stream of one connection."""
