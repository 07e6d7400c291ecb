"""What any log and any ledger must do, as tests to inherit.

``log``            a log's promises, on whatever disk
``log_store``      what a log is, and where one can lie
``log_model``      a list of entries that keeps them, to compare others with
``ledger``         what programs may rely on: appends, reads, leadership, members
``ledger_groups``  a group on virtual time that keeps it
"""
