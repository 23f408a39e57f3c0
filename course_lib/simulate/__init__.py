"""What a cluster would do: costs of collectives by published formulas."""
