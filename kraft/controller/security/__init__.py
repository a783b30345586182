"""The controller's decisions about ACLs, SCRAM credentials, client quotas and delegation tokens."""
