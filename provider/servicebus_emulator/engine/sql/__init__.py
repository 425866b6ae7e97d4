"""The SQL of subscription rules: tokenizer, parser and evaluation.

The language is that of Microsoft's "Subscription Rule SQL Filter Syntax" and "Subscription Rule SQL Action Syntax".
"""
