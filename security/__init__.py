"""Authentication and authorization without I/O: principals, SASL mechanisms, ACLs and quotas."""
