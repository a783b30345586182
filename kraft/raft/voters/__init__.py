"""The voters of the quorum: as the log describes them, and how they change."""
