"""Who may do what: the tokens that are made with shared access rules or by the token endpoint, and what they grant."""
