"""OAUTHBEARER (RFC 7628): a client logs in with a JWT that an identity provider signed."""
