"""AMQP values and messages in encoded form, decoded and rewritten only where necessary."""
