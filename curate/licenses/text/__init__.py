"""What a text says about licenses: its language, its tags, the terms it speaks of."""
