"""What `moldau dump-log` shows of each kind of file."""
