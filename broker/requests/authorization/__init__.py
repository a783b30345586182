"""What a client needs to be allowed for each API, where an authorizer is configured: rules before the handlers."""
