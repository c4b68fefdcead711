"""What an observation does to a card: rules and use-cases without any IO."""
