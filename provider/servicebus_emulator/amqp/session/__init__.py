"""One client connection: AMQP connection and sessions, links, authorization and idle timeouts."""
