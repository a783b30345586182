"""The transaction coordinator without a network keeps every rule."""
