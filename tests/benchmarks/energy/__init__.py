"""The yardstick for joules: known loads, sensors that see them, and the ways of counting that are compared."""
