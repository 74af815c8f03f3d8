"""The commands of `tremble`, each a record of its arguments that can run itself. Heavy imports wait until one does."""
