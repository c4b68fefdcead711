"""What is due, what one step does, and when an account rests: rules without any IO."""
