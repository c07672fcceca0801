"""What ranks send each other during training: halo rows, sums over parts, messages between stages."""
