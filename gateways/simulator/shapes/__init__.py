"""How each platform says what the simulated cards do; one file per platform."""
