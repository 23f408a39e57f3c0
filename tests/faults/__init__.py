"""What goes wrong on purpose, in every technique and on every kind of machine."""
