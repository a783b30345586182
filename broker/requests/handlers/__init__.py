"""One module per API: `handle(services, context, request)` answers it."""
