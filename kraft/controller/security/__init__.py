"""What the controller decides about ACLs, SCRAM credentials, client quotas and delegation tokens."""
