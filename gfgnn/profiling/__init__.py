"""What an iteration's seconds are spent on: labels, a recorder, the machine's ceilings, and what follows from them."""
