"""Complete programs, each readable on its own."""
