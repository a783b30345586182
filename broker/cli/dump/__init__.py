"""The output of `moldau dump-log` for each kind of file."""
