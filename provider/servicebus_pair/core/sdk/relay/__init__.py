"""Links that move encoded messages without decoding them; only where ``capabilities.relays()`` is true."""
