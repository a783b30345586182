"""The metadata about security: ACLs, SCRAM credentials, client quotas and delegation tokens."""
