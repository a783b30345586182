"""Classic groups: members, generations, and one file for each request."""
