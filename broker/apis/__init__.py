"""The APIs of this server: the catalogue, what an API is, and by subject one module for each API."""
