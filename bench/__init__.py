"""How fast enqueueing is, beside the least that the bare driver could do in the same run.

    python -m bench                       # every engine that this machine has
    python -m bench --engine postgres --rounds 5

Every engine runs with durable defaults in a database of its own, which is removed afterwards.
"""
