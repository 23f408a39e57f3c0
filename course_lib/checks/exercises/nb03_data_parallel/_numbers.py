"""What the exercises scaling_efficiency and learning_rate share."""

EXACT = 1e-9
