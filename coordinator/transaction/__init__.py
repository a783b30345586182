"""The transaction coordinator: the owner of each transactional id, and the beginning and end of its transactions."""
