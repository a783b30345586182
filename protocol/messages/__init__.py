"""The request and the response of each API, for all their versions; one module for each API."""
