"""Small control problems: does the default table of hyperparameters solve them?"""
