"""The reference's process: draws inputs and says what is right on them."""
