"""The transaction coordinator: it assigns each transactional id to one producer, and begins and ends its
transactions."""
