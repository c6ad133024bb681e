"""The registry's commands, a file for each noun."""
