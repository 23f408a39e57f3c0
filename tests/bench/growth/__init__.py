"""What grows with what: time and memory in sizes that double, without a limit."""
