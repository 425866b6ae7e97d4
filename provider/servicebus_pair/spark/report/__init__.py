"""Results as value objects and as self-contained HTML reports."""
