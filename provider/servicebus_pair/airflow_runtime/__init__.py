"""Runtime shared by operators, sensors and triggers: cancellation, state, observers, waiting and parameter checks."""
