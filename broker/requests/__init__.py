"""The APIs of this server: one table, and one handler for each API."""
