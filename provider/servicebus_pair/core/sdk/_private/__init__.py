"""Uses of azure-servicebus' private names; each is checked for and has a public fallback where one exists."""
