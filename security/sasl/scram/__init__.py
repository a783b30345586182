"""The SASL mechanisms SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), on both sides."""
