"""The share partitions that this broker leads: their machines, their state at the share coordinator, their locks."""
