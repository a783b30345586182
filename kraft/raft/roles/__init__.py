"""The roles of a member of the quorum, one module for each, and the transitions between them."""
