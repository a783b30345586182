"""One module per API: the request and the response of that API, for all their versions."""
