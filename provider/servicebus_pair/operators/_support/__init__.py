"""Base classes and helpers shared by the operators and the task decorator."""
