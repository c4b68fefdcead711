"""Timed roles of collection_writer, one file each."""
