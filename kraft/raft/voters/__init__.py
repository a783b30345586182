"""Changes of the voter set, one voter at a time (KIP-853)."""
