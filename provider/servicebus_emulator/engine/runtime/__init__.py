"""What the queues of a namespace share: journal, pending effects and rule evaluation."""
