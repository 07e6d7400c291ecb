"""The promises of any log and any ledger, as tests to inherit.

``log``            a log's promises, on any disk
``log_model``      a list of entries that keeps these promises, to compare logs with
``ledger``         a ledger's promises to programs: appends, reads, leadership, members
``ledger_groups``  a group on virtual time that keeps them
"""
