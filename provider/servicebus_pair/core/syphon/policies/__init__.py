"""How fast, how often and over how many links a syphon works. No I/O."""
