"""The third rung: messages that neither namespace took, kept on a mount or in an object store (SPEC section 10)."""
