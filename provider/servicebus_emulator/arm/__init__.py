"""Azure Resource Manager for ``azure-mgmt-servicebus``: namespaces, their entities and their keys."""
