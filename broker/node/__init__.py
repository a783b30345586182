"""A node put together: composition in dependency order, start, stop, the process."""
