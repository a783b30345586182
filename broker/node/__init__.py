"""A node put together: the composition of its parts in dependency order, its start and stop, and its process."""
