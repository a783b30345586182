"""One module per API: `handle(broker, context, request)` answers it."""
