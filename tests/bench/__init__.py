"""Speed, side by side: `python -m tests.bench`, or `make bench`.

Each row measures the course's code and what a user would otherwise take, in turn and in one run,
and prints the ratio of their times pair by pair. Absolute times depend on the machine; ratios do
less.
"""
