"""Deep Sea: which agents still explore as it grows."""
