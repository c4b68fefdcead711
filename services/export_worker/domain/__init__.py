"""Rules of exports; no IO."""
