"""Client quotas: entities, limits, rates in windows, and the times for which clients are throttled."""
