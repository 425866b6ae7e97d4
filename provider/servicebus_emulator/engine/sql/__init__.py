"""The SQL of subscription rules: text -> syntax tree -> pure evaluation.

The language is that of Microsoft's "Subscription Rule SQL Filter Syntax" and "Subscription Rule SQL Action
Syntax". Nothing here knows of queues, clocks or wires.
"""
