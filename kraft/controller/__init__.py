"""The controller, which decides on the records of the metadata log."""
