"""Clients of one namespace for the tasks and drivers of Spark, and what tasks leave open for the next one."""
