"""Notebook 08: three axes at once, which ranks share each, and what a cluster makes of them."""
