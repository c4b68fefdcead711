"""Where exports read from and write to."""
