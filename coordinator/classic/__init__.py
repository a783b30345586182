"""Classic groups: members, generations, and one module for each request."""
