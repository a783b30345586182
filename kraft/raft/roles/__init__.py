"""The roles of a member of the quorum, a file for each, and the ways between them."""
