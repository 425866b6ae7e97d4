"""Values and pure rules of the engine: messages, entity descriptions, errors, locks and timers."""
