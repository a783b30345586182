"""The metadata about security: ACLs, SCRAM credentials, client quotas, delegation tokens."""
