"""What the metadata says of security: ACLs, SCRAM credentials, client quotas, delegation tokens."""
