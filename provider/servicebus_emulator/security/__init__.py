"""Authentication and authorization: shared access signatures, bearer tokens and what they grant."""
