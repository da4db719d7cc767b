"""
Check-back: undecided transactions are found, checked and settled.

A round lists what is due, asks the evidence first and then the members of the producer group, and writes the decision
or puts the transaction off. A transaction that nothing can settle is parked for an operator.
"""
