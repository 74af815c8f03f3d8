"""Speed of tremble beside its peers, as ratios taken in one run. Run with ``make bench``; see README.md here."""
