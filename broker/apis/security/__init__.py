"""The APIs for logins, delegation tokens, ACLs and SCRAM credentials."""
