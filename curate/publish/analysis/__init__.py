"""What a finished run holds, counted once for the card, the report and the checks."""
