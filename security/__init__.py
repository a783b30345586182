"""The identity of a client, and what it may do: principals, SASL mechanisms, ACLs and quotas; no I/O."""
