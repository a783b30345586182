"""Client quotas: entities, limits, rates over windows, and throttle times."""
