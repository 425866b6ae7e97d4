"""Who may do what: shared access rules, the tokens that are made with them, and what a token grants."""
