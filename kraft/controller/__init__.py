"""The controller: decides what the metadata log says next."""
