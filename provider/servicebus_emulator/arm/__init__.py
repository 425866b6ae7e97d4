"""Azure Resource Manager as ``azure-mgmt-servicebus`` speaks it: namespaces, their entities, their keys."""
