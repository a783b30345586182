"""The APIs of logins, tokens, ACLs and credentials."""
