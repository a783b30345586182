"""Changes of the voters: one at a time, as KIP-853 describes them."""
