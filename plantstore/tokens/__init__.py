"""A file of access tokens: its lines, and the token check that reads it again when it changes."""
