"""Groups: which there are, what is told of one, what is changed."""
