"""Background refresh of the data that the page displays."""
