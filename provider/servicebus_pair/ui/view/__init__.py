"""Pure functions that turn collected data into the values of ``ui.views``."""
